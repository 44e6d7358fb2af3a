import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** One call, as the API server logs it. */
export interface Audited {
  readonly verb: string
  readonly responseStatus: { readonly code: number }
  readonly objectRef?: {
    readonly apiGroup?: string
    readonly resource: string
    readonly subresource?: string
    readonly namespace?: string
    readonly name?: string
  }
}

/** The audit log of an API server. */
export interface AuditLog {
  /** Flags for kube-apiserver. */
  readonly flags: readonly string[]
  /** Returns all completed calls. */
  read(): Promise<readonly Audited[]>
}

/** Logs each call of one user, and of no other, in a file of `directory`. */
export async function auditLogOf(user: string, directory: string): Promise<AuditLog> {
  const [policy, log] = [join(directory, 'audit-policy.json'), join(directory, 'audit.log')]
  const rules = [{ level: 'Metadata', users: [user] }, { level: 'None' }]
  await writeFile(policy, JSON.stringify({ apiVersion: 'audit.k8s.io/v1', kind: 'Policy', omitStages: ['RequestReceived'], rules }))
  return {
    flags: [`--audit-policy-file=${policy}`, `--audit-log-path=${log}`],
    async read() {
      const lines = (await readFile(log, 'utf8')).split('\n').slice(0, -1)
      return lines.map((line) => JSON.parse(line) as Audited) // a cast of what the API server writes
    },
  }
}

/** Returns the resource of a call, with its subresource: `platformgroups/status`. */
export function resourceOf({ objectRef: ref }: Audited): string {
  return [ref?.resource, ref?.subresource].filter((part) => part !== undefined).join('/')
}
