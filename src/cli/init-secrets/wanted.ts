import { Ajv } from 'ajv'
import type { TlsRole } from '../../base/certificate.ts'
import { UsageError } from '../exit-codes.ts'

/** A Secret with an encryption key: its entry `key` has 32 random bytes in base64. */
export interface WantedEncryptionKey {
  readonly kind: 'encryption-key'
  readonly name: string
}

/**
 * A Secret for a registry. `password` belongs to `username`, `htpasswd` contains its bcrypt hash, and `http-secret` is a random text that
 * the registry's replicas share.
 */
export interface WantedRegistryPassword {
  readonly kind: 'registry-password'
  readonly name: string
  readonly username: string
}

/** A Secret with a certificate authority: `tls.crt` and `tls.key`. */
export interface WantedAuthority {
  readonly kind: 'authority'
  readonly name: string
  readonly commonName: string
}

/** A Secret with a certificate, `ca.crt`, `tls.crt` and `tls.key`, signed by an authority of the same list. */
export interface WantedCertificate {
  readonly kind: 'certificate'
  readonly name: string
  /** Name of the Secret with the authority. */
  readonly authority: string
  readonly commonName: string
  readonly usages: readonly TlsRole[]
  readonly dnsNames: readonly string[]
}

/** A Secret that must exist. */
export type WantedSecret = WantedEncryptionKey | WantedRegistryPassword | WantedAuthority | WantedCertificate

/** The Secrets that must exist in a namespace. `labels` are set on those that the command creates. */
export interface Wanted {
  readonly namespace: string
  readonly labels: Readonly<Record<string, string>>
  readonly secrets: readonly WantedSecret[]
}

const text = { type: 'string', minLength: 1 } as const

function kind(name: WantedSecret['kind'], properties: Readonly<Record<string, object>>): object {
  const all = { kind: { const: name }, name: text, ...properties }
  return { type: 'object', properties: all, required: Object.keys(all), additionalProperties: false }
}

const schema = {
  type: 'object',
  properties: {
    namespace: text,
    labels: { type: 'object', additionalProperties: { type: 'string' } },
    secrets: {
      type: 'array',
      items: {
        type: 'object',
        discriminator: { propertyName: 'kind' },
        required: ['kind'],
        oneOf: [
          kind('encryption-key', {}),
          kind('registry-password', { username: { ...text, pattern: '^[^:\\s]+$' } }),
          kind('authority', { commonName: text }),
          kind('certificate', {
            authority: text,
            commonName: text,
            usages: { type: 'array', items: { enum: ['server', 'client'] }, minItems: 1, uniqueItems: true },
            dnsNames: { type: 'array', items: { ...text, pattern: '^[\\x21-\\x7e]+$' } },
          }),
        ],
      },
    },
  },
  required: ['namespace', 'labels', 'secrets'],
  additionalProperties: false,
}

const ajv = new Ajv({ allErrors: true, discriminator: true, strict: true, strictRequired: false })
const isWanted = ajv.compile<Wanted>(schema)

/** Parses the list of wanted Secrets from JSON. Throws UsageError with one line per fault. */
export function parseWanted(json: string): Wanted {
  const value: unknown = parseJson(json)
  if (!isWanted(value)) {
    const errors = (isWanted.errors ?? []).map(({ instancePath, message }) => `--wanted${instancePath}: ${message ?? 'is invalid'}`)
    throw new UsageError(errors.join('\n'))
  }
  const errors = errorsBetween(value)
  if (errors.length > 0) throw new UsageError(errors.join('\n'))
  return value
}

function parseJson(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    throw new UsageError('--wanted is not valid JSON', { cause: error })
  }
}

function errorsBetween({ secrets }: Wanted): string[] {
  const authorities = new Set(secrets.filter((secret) => secret.kind === 'authority').map(({ name }) => name))
  const names = secrets.map(({ name }) => name)
  return [
    ...names.filter((name, index) => names.indexOf(name) !== index).map((name) => `--wanted: ${name} is listed twice`),
    ...secrets
      .filter((secret) => secret.kind === 'certificate' && !authorities.has(secret.authority))
      .map(({ name }) => `--wanted: the authority of ${name} is not in the list`),
  ]
}
