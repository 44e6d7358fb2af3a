import type { LayerPackage } from '../../layer-package.ts'

/** Tags of a header, by number. */
const tags = { 1000: 'name', 1001: 'version', 1002: 'release', 1003: 'epoch', 1014: 'license', 1022: 'arch', 1044: 'source' } as const
type Tag = (typeof tags)[keyof typeof tags]

const types = { int32: 4, string: 6, strings: 8, translated: 9 } as const
const prefixBytes = 8
const indexBytes = 16
/** A header has far fewer entries. */
const maxEntries = 65_535

function isTag(tag: number): tag is keyof typeof tags {
  return Object.hasOwn(tags, tag)
}

/** What rpm writes for a text that is not there, for example the architecture of a key. */
const noText = '(none)'

function textAt(store: Buffer, at: number): string {
  const end = store.indexOf(0, at)
  const text = store.toString('utf8', at, end < 0 ? store.length : end)
  return text === noText ? '' : text
}

/** Returns the wanted values of a header: an index of tags, and a store with their values. Throws an Error if the sizes do not fit. */
function valuesOf(header: Buffer): ReadonlyMap<Tag, string> {
  if (header.length < prefixBytes) throw new Error('a header of a package is too short')
  const [entries, storeBytes] = [header.readUInt32BE(0), header.readUInt32BE(4)]
  const start = prefixBytes + entries * indexBytes
  if (entries > maxEntries || start + storeBytes > header.length) throw new Error('a header of a package is larger than its record')
  const store = header.subarray(start, start + storeBytes)
  const values = new Map<Tag, string>()
  for (let at = prefixBytes; at < start; at += indexBytes) {
    const tag = header.readUInt32BE(at)
    if (!isTag(tag)) continue
    const [type, offset] = [header.readUInt32BE(at + 4), header.readUInt32BE(at + 8)]
    if (type === types.int32 && offset + 4 <= store.length) values.set(tags[tag], String(store.readUInt32BE(offset)))
    else if (type === types.string || type === types.strings || type === types.translated) values.set(tags[tag], textAt(store, Math.min(offset, store.length)))
  }
  return values
}

/** Returns the package that a header of rpm describes. Throws an Error if the header is damaged. */
export function rpmPackage(header: Buffer): LayerPackage {
  const values = valuesOf(header)
  const text = (tag: Tag): string => values.get(tag) ?? ''
  const [name, version, release, arch, source] = [text('name'), text('version'), text('release'), text('arch'), text('source')]
  const epoch = values.get('epoch')
  const build = release === '' ? version : `${version}-${release}`
  const qualifiers = {
    ...(arch === '' ? {} : { arch }),
    ...(epoch === undefined ? {} : { epoch }),
    ...(source === '' ? {} : { upstream: source }),
  }
  // `name-version-release.src.rpm`
  const [, origin = ''] = /^(.+)-[^-]+-[^-]+\.(?:no)?src\.rpm$/.exec(source) ?? []
  const whole = epoch === undefined || build === '' ? build : `${epoch}:${build}`
  return { type: 'rpm', name, version: whole, url: { version: build, qualifiers }, origin: origin === name ? '' : origin, licenses: [text('license')] }
}
