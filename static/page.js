// Show the Copy button of each copy box; without this script the text can still be selected.
for (const box of document.querySelectorAll("[data-copy]")) {
  const button = box.querySelector("button");
  if (!button || !navigator.clipboard) continue;
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(box.querySelector("code, pre").textContent);
      button.textContent = document.body.dataset.copied;
    } catch {
      button.textContent = document.body.dataset.select;
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

// Show a value that contains that of a field, such as a redirect URI.
for (const shown of document.querySelectorAll("[data-follows]")) {
  const { follows, pattern, placeholder } = shown.dataset;
  const field = document.getElementById(follows);
  const show = () => { shown.textContent = pattern.replace(placeholder, () => field.value.trim() || placeholder); };
  field.addEventListener("input", show);
  show();
}

// Move the focus to the error summary, so that screen readers announce it first.
document.getElementById("errors")?.focus();

// On a phone, scroll the row of tabs to the current one.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// "/" moves to the search, unless somebody is typing.
const find = document.getElementById("find");
if (find) document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  event.preventDefault();
  find.focus();
});

// Close the list of organizations with Escape, which returns the focus, and with a click elsewhere.
const organizations = document.querySelector(".switch");
if (organizations) {
  document.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape" || !organizations.open) return;
    organizations.open = false;
    organizations.querySelector("summary").focus();
  });
  document.addEventListener("click", ({ target }) => {
    if (!organizations.contains(target)) organizations.open = false;
  });
}

// "Forgot password?" takes along the email that was entered, in the fragment of the URL, which no server sees.
const forgot = document.getElementById("forgot-link");
const username = document.getElementById("username");
forgot?.addEventListener("click", () => { forgot.hash = new URLSearchParams({ email: username.value }); });
const email = new URLSearchParams(location.hash.slice(1)).get("email");
if (email && document.getElementById("forgot-submit")) {
  username.value ||= email;
  history.replaceState(null, "", location.pathname + location.search);
}

// Send a form only once: while the response is on its way, a second click would register a second client or use up a
// one-time code. After ten seconds the user may try again, as after a response that keeps the page, such as one that
// opens an app.
let sent;
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  if (form === sent) return event.preventDefault();
  sent = form;
  form.dataset.sent = "";
  setTimeout(release, 10_000, form);
});

function release(form) {
  delete form.dataset.sent;
  if (sent === form) sent = undefined;
}

// The page may be the same one again after Back.
addEventListener("pageshow", () => sent && release(sent));

// Keep what is entered in a form until the next page. If that is not one of the portal or the account, the form was not
// saved: a sign-in had ended, or the service was away. The page with the form, opened again by the same user, then has
// what they entered. Passwords, codes, tokens and files are not kept, and nothing outlives the tab.
const CONFIDENTIAL = "[type=password], [type=file], [type=hidden]:not([name=version]), [autocomplete=one-time-code], [data-confidential]";
const account = document.querySelector("[data-account]")?.dataset.account;

document.addEventListener("submit", ({ target: form }) => {
  // The page of an expired form submits it again.
  if (form.querySelector("#resend")) return keep(null);
  if (!account || form.method !== "post" || !form.closest("main")) return;
  const fields = [...form.elements].filter((field) => field.name && !field.matches(`button, fieldset, ${CONFIDENTIAL}`));
  // Nothing was entered in a form that only has buttons.
  if (fields.every(({ type }) => type === "hidden")) return keep(null);
  keep({ account, action: targetOf(form), fields: fields.map(({ name, value, checked }) => ({ name, value, checked })) });
});

// The URL that a form is sent to, without the anchor of the page: links in the error summary lead to fields.
function targetOf(form) {
  return new URL(form.getAttribute("action") ?? "", location).href;
}

function keep(entered) {
  try {
    sessionStorage.setItem("entered", JSON.stringify(entered));
  } catch {
    // The browser keeps nothing for this site, or has no space.
  }
}

function takeEntered() {
  try {
    const entered = JSON.parse(sessionStorage.getItem("entered"));
    if (account) sessionStorage.removeItem("entered");
    else if (entered) keep({ ...entered, unsaved: true });
    return entered;
  } catch {
    return null;
  }
}

const entered = takeEntered();
if (entered?.unsaved && entered.account === account) {
  const form = [...document.querySelectorAll("main form")].find((form) => form.method === "post" && targetOf(form) === entered.action);
  const left = form && [...form.elements];
  for (const { name, value, checked } of form ? entered.fields : []) {
    // Fields of one name, such as the rows of a list, are in the same order. Those of a choice differ in their values.
    const index = left.findIndex((field) => field.name === name && (!["checkbox", "radio"].includes(field.type) || field.value === value));
    if (index < 0) continue;
    const [field] = left.splice(index, 1);
    if (["checkbox", "radio"].includes(field.type)) field.checked = checked;
    else field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  if (form) {
    const { content } = document.getElementById("restored");
    content.firstElementChild.setAttribute("role", "status");
    document.getElementById("restored").replaceWith(content);
  }
}
