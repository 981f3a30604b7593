// Show a verdict below each list of redirect URIs while it is typed, and buttons that add an example.
for (const field of document.querySelectorAll("textarea[data-check]")) {
  const list = document.getElementById(`${field.id}-verdicts`);
  let timer, latest = 0;
  const check = async () => {
    const number = ++latest;
    let verdicts = [];
    if (field.value.trim()) {
      try {
        const answer = await fetch(`${field.dataset.check}&uris=${encodeURIComponent(field.value)}`);
        if (!answer.ok) return;
        verdicts = await answer.json();
      } catch { return; }
    }
    if (number !== latest) return;
    list.replaceChildren(...verdicts.map(({ uri, valid, message }) => {
      const item = document.createElement("li"), code = document.createElement("code"), text = document.createElement("span");
      code.textContent = uri;
      text.className = `badge wrap ${valid ? "ok" : "danger"}`;
      text.textContent = message;
      item.append(code, text);
      return item;
    }));
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 300); });
  for (const button of document.querySelectorAll(`[data-add-to="${field.id}"]`)) {
    button.hidden = false;
    button.addEventListener("click", () => {
      field.value = [field.value.trim(), button.value].filter(Boolean).join("\n");
      check();
      field.focus();
    });
  }
}
