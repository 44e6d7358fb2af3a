import { SealingError, type Keyring } from '../../authn/sealing.ts'
import type { Uid } from '../../core/uid.ts'
import { RegistryError } from '../registry-error.ts'
import type { Upload } from '../upstream/upstream.ts'

/** Whose upload it is, and where. */
export interface UploadName {
  readonly repo: Uid
  readonly identity: Uid
  /** 32 hex digits. */
  readonly id: string
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
