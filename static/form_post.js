// The answer goes to the client without a click; its button stays for browsers without scripts.
document.getElementById("authorization-response").submit();
