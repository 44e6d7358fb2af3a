import { auditedCaller, type AuditLine, type AuditTrail } from '../../base/audit-line.ts'
import { capabilitiesOfAction, type RegistryAction } from '../gate.ts'
import type { RegistryError } from '../registry-error.ts'
import type { RegistryExchange } from './exchange.ts'
import type { OciPath, OciPathKind } from './oci-path.ts'

interface AuditedWrite {
  readonly method: string
  readonly action: RegistryAction
}

/** Requests that change the content of a repo, by kind of path and method. Chunks of an upload change nothing until the upload is finished. */
const writes: Partial<Record<OciPathKind, Readonly<Record<string, AuditedWrite>>>> = {
  manifest: { PUT: { method: 'registry/putManifest', action: 'push' }, DELETE: { method: 'registry/deleteManifest', action: 'delete' } },
  blob: { DELETE: { method: 'registry/deleteBlob', action: 'delete' } },
  uploads: { POST: { method: 'registry/putBlob', action: 'push' } },
  upload: { PUT: { method: 'registry/putBlob', action: 'push' } },
}

/** gRPC status codes for the audit trail, by HTTP status of a refused write. */
const codes: Readonly<Record<number, number>> = { 401: 16, 403: 7, 404: 5, 409: 9, 429: 8, 503: 14, 504: 4 }

/**
 * Records a write in the audit trail, as done or as refused with `error`. Skips writes that the gate refused, since the gate has recorded
 * them. Skips a `POST` that only starts an upload.
 */
export function auditWrite(trail: AuditTrail, exchange: RegistryExchange, { path, error }: { readonly path: OciPath; readonly error?: RegistryError }): void {
  const { admitted, request, response } = exchange
  const write = writes[path.kind]?.[request.method ?? '']
  if (write === undefined || admitted === undefined) return
  if (error === undefined && path.kind === 'uploads' && response.statusCode !== 201) return
  const { target, repository, caller } = admitted
  trail.record({
    ...outcomeOf(error),
    method: write.method,
    transport: 'http',
    capability: capabilitiesOfAction[write.action].join(','),
    requestId: exchange.requestId,
    ...auditedCaller(caller),
    subject: target.kind === 'repo' ? target.uid : target.parent,
    kind: 'Repo',
    name: nameOf(repository, path),
    remoteAddress: exchange.remoteAddress,
    userAgent: exchange.userAgent,
  })
}

function outcomeOf(error: RegistryError | undefined): Pick<AuditLine, 'outcome' | 'code' | 'reason'> {
  if (error === undefined) return { outcome: 'done' }
  const code = codes[error.status] ?? (error.status < 500 ? 3 : 13)
  return { outcome: code === 7 || code === 16 ? 'denied' : 'failed', code, reason: error.code }
}

/** Returns `<repository>:<tag>` or `<repository>@<digest>`, as clients write it. */
function nameOf(repository: string, path: OciPath): string {
  if (path.kind === 'blob') return `${repository}@${path.digest}`
  if (path.kind !== 'manifest') return repository
  const { reference } = path
  if (reference.kind === 'tag') return `${repository}:${reference.tag}`
  return reference.kind === 'digest' ? `${repository}@${reference.digest}` : repository
}
