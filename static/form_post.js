// Submit the response to the client; browsers without scripts use the button.
document.getElementById("authorization-response").submit();
