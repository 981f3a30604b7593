// openapi-generator -g typescript-fetch, as its README shows.
import { AuditLogApi, ClientsApi, Configuration, type ErrorResponse, ResponseError } from "./generated";

declare const process: { env: { BASE: string; TOKEN: string }; exitCode: number };

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

async function rejected(request: Promise<unknown>): Promise<ErrorResponse> {
  try {
    await request;
  } catch (error) {
    if (error instanceof ResponseError) return (await error.response.json()) as ErrorResponse;
    throw error;
  }
  throw new Error("The request succeeded.");
}

async function main(): Promise<void> {
  // It sends the access token of an OAuth 2.0 scheme as it is given, without the word Bearer.
  const configuration = new Configuration({
    basePath: process.env.BASE,
    accessToken: `Bearer ${process.env.TOKEN}`,
  });
  const clients = new ClientsApi(configuration);
  const auditLog = new AuditLogApi(configuration);

  const made = await clients.registerClient({
    newClientInOrganization: {
      name: "Orchard",
      redirectUris: new Set(["https://orchard.example/callback"]),
      scopes: new Set(["openid"]),
    },
  });
  const clientId = made.data.clientId;
  check(made.data.clientSecret?.startsWith("gth_cs_") ?? false, made);
  check(made.data.accessTokenFormat === null && made.data.createdAt instanceof Date, made);

  const listed = await clients.listClients({ limit: 100, status: "active" });
  check(listed.meta.nextCursor === null, listed.meta);
  check(listed.data.some((client) => client.clientId === clientId && client.name === "Orchard"), listed.data);

  const changed = await clients.updateClient({ clientId, clientChange: { name: "Meadow", accessTokenFormat: "jwt" } });
  check(changed.data.accessTokenFormat === "jwt" && changed.meta.changed.includes("name"), changed);

  const events = await auditLog.listAuditEvents({ target: clientId });
  const registered = events.data.find((event) => event.action === "client.registered");
  const updated = events.data.find((event) => event.action === "client.updated");
  check(registered !== undefined && updated !== undefined, events.data);
  const { data: event } = await auditLog.getAuditEvent({ auditEventId: registered.id });
  check(event.before === null && event.after?.["name"] === "Orchard", event);
  check(updated.before?.["name"] === "Orchard" && updated.after?.["name"] === "Meadow", updated);

  const invalid = await rejected(
    clients.updateClient({ clientId, clientChange: { redirectUris: new Set(["http://meadow.example"]) } }),
  );
  check(invalid.error === "invalid_input" && invalid.errors[0].field === "redirect_uris[0]", invalid);

  check((await clients.deleteClient({ clientId })).success, "deleted");
  check((await rejected(clients.getClient({ clientId }))).error === "not_found", "gone");
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
