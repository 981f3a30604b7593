// Passkeys: forms that ask the browser for a passkey and post its response in a hidden field.
const bytes = text => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), c => c.charCodeAt(0));
const text = buffer => btoa(String.fromCharCode(...new Uint8Array(buffer)))
  .replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
const listed = known => known.map(one => ({ ...one, id: bytes(one.id) }));
const STALE = 240_000; // A challenge expires after five minutes.
let waiting; // Only one request at a time: a click on the button cancels the autofill request.

async function ask(form, mediation) {
  waiting?.abort();
  const { signal } = (waiting = new AbortController());
  const o = structuredClone(form.options);
  o.challenge = bytes(o.challenge);
  let made;
  if (o.user) {
    o.user.id = bytes(o.user.id);
    o.excludeCredentials = listed(o.excludeCredentials);
    made = await navigator.credentials.create({ publicKey: o, signal });
  } else {
    o.allowCredentials = listed(o.allowCredentials);
    made = await navigator.credentials.get({ publicKey: o, signal, mediation });
  }
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"])
    if (made.response[name]) response[name] = text(made.response[name]);
  response.transports = made.response.getTransports?.();
  form.elements.answer.value = JSON.stringify({
    id: made.id, rawId: made.id, type: made.type, response,
    clientExtensionResults: made.getClientExtensionResults(),
  });
  form.submit();
}

async function renew(form) {
  if (!form.dataset.renew || Date.now() - form.made < STALE) return;
  form.options = await (await fetch(form.dataset.renew)).json();
  form.made = Date.now();
}

async function offer(form) {
  form.options = JSON.parse(form.dataset.passkey);
  form.made = Date.now();
  form.hidden = false;
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const note = form.querySelector("[role=alert]");
    note.hidden = true;
    let signal;
    try {
      await renew(form);
      const asked = ask(form);
      ({ signal } = waiting);
      await asked;
    } catch (error) {
      if (signal?.aborted) return; // A second click asks in place of the first one.
      const words = JSON.parse(form.dataset.words);
      note.textContent = words[error.name] ?? words.other;
      note.hidden = false;
      autofill(form);
    }
  });
  autofill(form);
}

// Offer passkeys in the autofill of the username field, except after one was rejected.
async function autofill(form) {
  if (!("autofill" in form.dataset) || !(await PublicKeyCredential.isConditionalMediationAvailable?.())) return;
  const again = setTimeout(() => renew(form).then(() => autofill(form), () => {}), STALE);
  ask(form, "conditional").catch(() => clearTimeout(again));
}

if (window.PublicKeyCredential) {
  for (const note of document.querySelectorAll("[data-without-passkeys]")) note.hidden = true;
  for (const form of document.querySelectorAll("form[data-passkey]")) offer(form);
}
