// Show when the client has received its first token; without this script the page has a link to check again.
const note = document.querySelector("#first-token");
const [waiting, received] = ["waiting", "received"].map((name) => note?.querySelector(`[data-${name}]`));
let checks = 0;

async function check() {
  if (!document.hidden) {
    try {
      const response = await fetch(note.dataset.state);
      if (response.ok && (await response.json()).has_token) {
        note.classList.add("ok");
        waiting.hidden = true;
        received.hidden = false;
        return;
      }
    } catch {
      // The next check may succeed.
    }
  }
  // Every three seconds for five minutes, then less often, and never for longer than an hour.
  if (++checks < 200) setTimeout(check, checks < 100 ? 3000 : 30000);
}

if (waiting && !waiting.hidden) setTimeout(check, 3000);
