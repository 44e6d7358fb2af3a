import { ok, type TestServer } from './test-server.ts'

/** Suspends an organisation. */
export async function suspend(server: TestServer, group: string): Promise<void> {
  ok(await server.rest.call('SuspendGroup', { uid: group }, { token: await server.operatorToken() }))
}

/** Reinstates a suspended organisation. */
export async function reinstate(server: TestServer, group: string): Promise<void> {
  ok(await server.rest.call('ResumeGroup', { uid: group }, { token: await server.operatorToken() }))
}
