// Each copy box gets its button; the text itself stays selectable without this.
for (const box of document.querySelectorAll("[data-copy]")) {
  const button = box.querySelector("button");
  if (!button || !navigator.clipboard) continue;
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(box.querySelector("code, pre").textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it";
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

// After a refused form the summary of its errors is read out first.
document.getElementById("errors")?.focus();
