import { isUid } from '../../base/uid.ts'
import { TokenError } from './token-error.ts'

/** The credential in an `authorization` header. */
export interface Credential {
  readonly token: string
  /** Uid of the identity that the caller assumes with the token: the user name of HTTP Basic, if it is a uid. */
  readonly identity?: string
}

/** The user name of HTTP Basic whose password is a platform access token (docs/spec/tokens.md#credentials). */
export const tokenUserName = '_token'

/**
 * Reads the credential from an `authorization` header. The forms are `Bearer <token>`, the token alone, `Basic base64(<identity uid>:<token>)` and `Basic
 * base64(_token:<token>)`. The token alone is accepted because some clients send the content of a file. Throws TokenError `missing` without a credential and
 * `unreadable` for anything else.
 */
export function parseAuthorization(header: string | undefined): Credential {
  const text = header?.trim() ?? ''
  if (text === '') throw new TokenError('missing')
  const [scheme = '', rest, ...more] = text.split(/ +/)
  if (more.length > 0) throw new TokenError('unreadable')
  if (rest === undefined) {
    if (/^(bearer|basic)$/i.test(scheme)) throw new TokenError('missing')
    return { token: scheme }
  }
  if (/^bearer$/i.test(scheme)) return { token: rest }
  if (/^basic$/i.test(scheme)) return parseBasic(rest)
  throw new TokenError('unreadable')
}

function parseBasic(encoded: string): Credential {
  const decoded = Buffer.from(encoded, 'base64').toString('utf8')
  const colon = decoded.indexOf(':')
  const user = decoded.slice(0, Math.max(colon, 0))
  const token = decoded.slice(colon + 1)
  if (colon < 0 || token === '') throw new TokenError('unreadable')
  if (user === tokenUserName) return { token }
  if (isUid(user)) return { token, identity: user }
  throw new TokenError('unreadable')
}
