/** The AWS identity that signed a request, as AWS reports it (`GetCallerIdentity`). */
export interface AwsCaller {
  readonly arn: string
  readonly userId: string
  readonly account: string
}

const names = ['Arn', 'UserId', 'Account'] as const

const envelope =
  /^\s*(?:<\?xml[^<>]*\?>\s*)?<GetCallerIdentityResponse xmlns="https:\/\/sts\.amazonaws\.com\/doc\/2011-06-15\/">\s*<GetCallerIdentityResult>((?:\s*<(?:Arn|UserId|Account)>[^<>]*<\/(?:Arn|UserId|Account)>){3})\s*<\/GetCallerIdentityResult>\s*(?:<ResponseMetadata>\s*<RequestId>[^<>]*<\/RequestId>\s*<\/ResponseMetadata>\s*)?<\/GetCallerIdentityResponse>\s*$/

const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }

/**
 * Reads the AWS identity from the answer of AWS: XML by default, or JSON if the signed request had `Accept: application/json`. Accepts only the complete,
 * known form. Returns undefined for any other body, and if the ARN is of another account than the answer says.
 */
export function parseAwsCaller(body: Uint8Array): AwsCaller | undefined {
  const text = decode(body)
  const values = text === undefined ? undefined : text.trimStart().startsWith('{') ? fromJson(text) : fromXml(text)
  if (values === undefined) return undefined
  const [arn, userId, account] = names.map((name) => values.get(name))
  if (arn === undefined || userId === undefined || account === undefined || values.size !== names.length) return undefined
  const isWhole = /^\d{12}$/.test(account) && /^[\x21-\x7e]{1,256}$/.test(userId) && arn.length <= 2048 && arnOf(account).test(arn)
  return isWhole ? { arn, userId, account } : undefined
}

function decode(body: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body)
  } catch {
    // A body that is not UTF-8 text is not an answer of AWS.
    return undefined
  }
}

function arnOf(account: string): RegExp {
  return new RegExp(`^arn:[a-z][a-z0-9-]*:(?:iam|sts)::${account}:[^\\s\\x00-\\x1f]+$`)
}

function fromXml(text: string): Map<string, string> | undefined {
  const [, inner] = envelope.exec(text) ?? []
  if (inner === undefined) return undefined
  const values = new Map<string, string>()
  for (const [, open = '', value = '', close] of inner.matchAll(/<(\w+)>([^<>]*)<\/(\w+)>/g)) {
    const plain = unescaped(value)
    if (open !== close || plain === undefined) return undefined
    values.set(open, plain)
  }
  return values
}

/** Decodes the five XML entities. Returns undefined if the text has any other `&`. */
function unescaped(value: string): string | undefined {
  if (/&(?!(?:amp|lt|gt|quot|apos);)/.test(value)) return undefined
  return value.replace(/&(\w+);/g, (_, name: string) => entities[name] ?? '')
}

function fromJson(text: string): Map<string, string> | undefined {
  try {
    const result = memberOf(memberOf(JSON.parse(text), 'GetCallerIdentityResponse'), 'GetCallerIdentityResult')
    const values = new Map<string, string>()
    for (const name of names) {
      const value = memberOf(result, name)
      if (typeof value === 'string') values.set(name, value)
    }
    return values
  } catch {
    // A body that is not JSON is not an answer of AWS.
    return undefined
  }
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined
}
