import { PackageURL } from 'packageurl-js'
import type { Distribution } from './package.ts'

/** What a package URL says of its package. */
export interface PackageIdentity {
  /** The canonical package URL. */
  readonly purl: string
  readonly type: string
  /** The name with its namespace, as its ecosystem writes it. */
  readonly name: string
  readonly version: string
  /** The package that it was built from, if a qualifier names it; else empty. */
  readonly origin: string
  /** The distribution that it is made for, if a qualifier names it. */
  readonly distribution: Distribution | undefined
}

/** The parts of a package whose source names no package URL. */
export interface PackageParts {
  /** A type of package URLs. */
  readonly type: string
  /** Empty if there is none. It may also begin the name, for example in `@scope/name`. */
  readonly namespace: string
  readonly name: string
  readonly version: string
}

/** The longest package URL, in characters. */
const maxPurlLength = 2_048

/** Types whose namespace is the distribution, and no part of the name. */
export const distributionTypes: ReadonlySet<string> = new Set(['alpm', 'apk', 'deb', 'rpm'])
/** Types whose package URL is wrong without a namespace. */
const namespacedTypes: ReadonlySet<string> = new Set([...distributionTypes, 'composer', 'maven', 'swift'])
/** Types whose name holds the namespace, up to the last slash. */
const pathTypes: ReadonlySet<string> = new Set(['composer', 'golang', 'npm', 'swift'])

const control = /\p{Cc}/u

/** True for a text without control characters and half characters that has at most `max` characters. */
export function isPlainText(value: unknown, max: number): value is string {
  return typeof value === 'string' && value.length <= max && !control.test(value) && value.isWellFormed()
}

/** Returns what makes, or undefined if it throws. The package throws errors of several classes. */
function attempt(make: () => PackageURL): PackageURL | undefined {
  try {
    return make()
  } catch {
    return undefined
  }
}

function nameOf({ type, namespace, name }: PackageURL): string {
  if (!namespace || distributionTypes.has(type)) return name
  return `${namespace}${type === 'maven' ? ':' : '/'}${name}`
}

/**
 * Returns the name of a source package: `gcc-12` of `gcc-12@12.2.0-14`, and `bash` of `bash-5.1.8-6.el9.src.rpm`. Empty for what is no text, or too long.
 */
export function originName(value: unknown): string {
  if (!isPlainText(value, 512)) return ''
  const [, ofRpm] = /^(.+)-[^-]+-[^-]+\.(?:no)?src\.rpm$/.exec(value) ?? []
  return ofRpm ?? value.split(/[@ ]/, 1)[0] ?? ''
}

/** Returns the distribution in the qualifier `distro`: `debian-12`, or `3.20.1` after the namespace `alpine`. */
function distributionIn({ type, namespace, qualifiers }: PackageURL): Distribution | undefined {
  const distro = qualifiers?.['distro']
  if (!distributionTypes.has(type) || !namespace || !isPlainText(distro, 128)) return undefined
  const [, id, version] = /^(\D.*)-(\d[^-]*)$/.exec(distro) ?? []
  if (id !== undefined && version !== undefined) return { id, version }
  return /^\d/.test(distro) ? { id: namespace, version: distro } : { id: distro, version: '' }
}

function identityOf(url: PackageURL | undefined): PackageIdentity | undefined {
  if (url === undefined) return undefined
  const origin = originName(url.qualifiers?.['upstream'])
  const found = { purl: url.toString(), type: url.type, name: nameOf(url), version: url.version ?? '', origin, distribution: distributionIn(url) }
  // Escapes can hide control characters.
  const parts = [found.purl, found.name, found.version, url.namespace ?? '', url.subpath ?? '', ...Object.values(url.qualifiers ?? {})]
  return parts.every((part) => isPlainText(part, maxPurlLength)) ? found : undefined
}

/** Returns the package with a package URL. Undefined if it is not valid, longer than `maxPurlLength`, or has control characters. */
export function packageOfUrl(text: unknown): PackageIdentity | undefined {
  if (!isPlainText(text, maxPurlLength)) return undefined
  return identityOf(attempt(() => PackageURL.fromString(text)))
}

/** Which package URLs a search for one finds. */
export interface PurlFilter {
  /** The canonical text up to the version. Without a version, up to the name. */
  readonly start: string
  readonly hasVersion: boolean
  /** Canonical texts such as `arch=arm64`. Each must be in a found URL. */
  readonly qualifiers: readonly string[]
  /** In its canonical form. Empty for any. */
  readonly subpath: string
}

/** Returns the qualifiers and the subpath of a canonical package URL, as texts. Other parts contain neither `?` nor `#`. */
function endsOf(purl: string): Pick<PurlFilter, 'qualifiers' | 'subpath'> {
  const [before = '', subpath = ''] = purl.split('#', 2)
  const [, qualifiers] = before.split('?', 2)
  return { qualifiers: qualifiers?.split('&') ?? [], subpath }
}

/** Returns the filter of a package URL; undefined if it is not valid. */
export function purlFilter(text: string): PurlFilter | undefined {
  const url = isPlainText(text, maxPurlLength) ? attempt(() => PackageURL.fromString(text)) : undefined
  if (url === undefined) return undefined
  const { type, namespace, name, version } = url
  const start = attempt(() => new PackageURL(type, namespace, name, version, undefined, undefined))?.toString()
  return start === undefined ? undefined : { start, hasVersion: Boolean(version), ...endsOf(url.toString()) }
}

/**
 * True if the filter finds a canonical package URL that starts with its text and has nothing or `@`, `?` or `#` after it. It compares texts: a name may have
 * tens of thousands of URLs.
 */
export function isFound(purl: string, wanted: PurlFilter): boolean {
  if (wanted.qualifiers.length === 0 && wanted.subpath === '') return true
  const { qualifiers, subpath } = endsOf(purl)
  return wanted.qualifiers.every((one) => qualifiers.includes(one)) && (wanted.subpath === '' || subpath === wanted.subpath)
}

/** Returns the package with these parts, and makes its package URL. Undefined if the parts are not enough, or not valid. */
export function packageOfParts({ type, namespace, name, version }: PackageParts): PackageIdentity | undefined {
  const slash = pathTypes.has(type) && namespace === '' ? name.lastIndexOf('/') : -1
  const scope = slash < 0 ? namespace : name.slice(0, slash)
  const isWhole = name !== '' && (scope !== '' || !namespacedTypes.has(type))
  const isShort = [type, namespace, name, version].every((part) => isPlainText(part, maxPurlLength))
  if (!isWhole || !isShort) return undefined
  return identityOf(attempt(() => new PackageURL(type, scope || undefined, name.slice(slash + 1), version || undefined, undefined, undefined)))
}
