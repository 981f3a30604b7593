// openapi-typescript with openapi-fetch, as its documentation shows.
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./generated";

declare const process: { env: { BASE: string; TOKEN: string }; exitCode: number };

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const authentication: Middleware = {
  onRequest({ request }) {
    request.headers.set("Authorization", `Bearer ${process.env.TOKEN}`);
    return request;
  },
};

async function main(): Promise<void> {
  const gatehouse = createClient<paths>({ baseUrl: process.env.BASE });
  gatehouse.use(authentication);

  const body: components["schemas"]["NewClientInOrganization"] = {
    name: "Orchard",
    redirect_uris: ["https://orchard.example/callback"],
    scopes: ["openid"],
  };
  const made = await gatehouse.POST("/clients", { body });
  check(made.data !== undefined, made.error);
  const clientId = made.data.data.client_id;
  check(made.data.data.access_token_format === null, made.data);

  const listed = await gatehouse.GET("/clients", { params: { query: { limit: 100, status: "active" } } });
  check(listed.data?.meta.next_cursor === null, listed.error);
  check(listed.data.data.some((client) => client.client_id === clientId && client.name === "Orchard"), listed.data);

  const path = { clientId };
  const changed = await gatehouse.PUT("/clients/{clientId}", {
    params: { path },
    body: { name: "Meadow", access_token_format: "jwt" },
  });
  check(changed.data?.data.access_token_format === "jwt" && changed.data.meta.changed.includes("name"), changed);

  const events = await gatehouse.GET("/audit-events", { params: { query: { target: clientId } } });
  const registered = events.data?.data.find((event) => event.action === "client.registered");
  const updated = events.data?.data.find((event) => event.action === "client.updated");
  check(registered !== undefined && updated !== undefined, events);
  const read = await gatehouse.GET("/audit-events/{auditEventId}", { params: { path: { auditEventId: registered.id } } });
  check(read.data?.data.before === null && read.data.data.after?.["name"] === "Orchard", read);
  check(updated.before?.["name"] === "Orchard" && updated.after?.["name"] === "Meadow", updated);

  const invalid = await gatehouse.PUT("/clients/{clientId}", {
    params: { path },
    body: { redirect_uris: ["http://meadow.example"] },
  });
  check(invalid.error?.error === "invalid_input" && invalid.error.errors[0].field === "redirect_uris[0]", invalid);

  check((await gatehouse.DELETE("/clients/{clientId}", { params: { path } })).data?.success === true, "deleted");
  const gone = await gatehouse.GET("/clients/{clientId}", { params: { path } });
  check(gone.error?.error_code === 404, gone);
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
