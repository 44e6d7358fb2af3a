import { isUid } from '../../base/uid.ts'
import { TokenError } from './token-error.ts'

/** What an `authorization` header carries. */
export interface Credential {
  readonly token: string
  /** The identity that the token is meant for: the user name of Basic, where it is a uid. */
  readonly identity?: string
}

/** The Basic user name that goes with a platform access token (docs/spec/tokens.md#credentials). */
export const tokenUserName = '_token'

/**
 * Reads `Bearer <token>`, a bare token (some clients send a file's content as it is), `Basic base64(<identity uid>:<token>)` and `Basic base64(_token:<token>)`.
 * Throws TokenError `missing` without a credential and `unreadable` for anything else.
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
