import { SealingError, type Keyring } from '../../../auth/keys/sealing.ts'
import type { Random } from '../../../base/runtime.ts'
import type { Uid } from '../../../base/uid.ts'
import { RegistryError } from '../../registry-error.ts'
import type { Upload } from '../../upstream/upstream.ts'

/** Whose upload it is, and where. */
export interface UploadName {
  readonly repo: Uid
  readonly identity: Uid
  /** A UUID. */
  readonly id: string
}

/** A UUID of version 4 (RFC 9562). */
export function newUploadId(random: Random): string {
  const bytes = Buffer.from(random.bytes(16))
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}

/** What is sealed can be opened for this upload alone. */
function contextOf({ repo, identity, id }: UploadName): string {
  return `registry upload ${id} to ${repo} by ${identity}`
}

/** All that a replica needs to go on with an upload, as a text for a URL that tells the client nothing. */
export function sealUpload(sealer: Keyring, name: UploadName, { state, offset }: Upload): string {
  return Buffer.from(sealer.seal(Buffer.from(`${offset} ${state}`), contextOf(name))).toString('base64url')
}

/** Opens what sealUpload made. Throws BLOB_UPLOAD_UNKNOWN where it was made for another upload, repo or caller, or not by us. */
export function openUpload(sealer: Keyring, name: UploadName, sealed: string): Upload {
  let text: string
  try {
    text = Buffer.from(sealer.open(Buffer.from(sealed, 'base64url'), contextOf(name))).toString()
  } catch (error) {
    if (!(error instanceof SealingError)) throw error
    throw new RegistryError('BLOB_UPLOAD_UNKNOWN', 'there is no such upload', { cause: error })
  }
  const space = text.indexOf(' ')
  return { offset: Number(text.slice(0, space)), state: text.slice(space + 1) }
}
