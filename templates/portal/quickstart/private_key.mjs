import { readFile } from "node:fs/promises";

const key = JSON.parse(await readFile("private-key.json")); // the private JWK of a registered public key
const { kid, kty, alg = { EC: "ES256", OKP: "EdDSA" }[kty] ?? {{ rsa_algorithm|string }} } = key;
const algorithms = {
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  PS256: { name: "RSA-PSS", hash: "SHA-256" },
  ES256: { name: "ECDSA", namedCurve: "P-256" },
};
const privateKey = await crypto.subtle.importKey("jwk", key, algorithms[alg] ?? { name: "Ed25519" }, false, ["sign"]);
