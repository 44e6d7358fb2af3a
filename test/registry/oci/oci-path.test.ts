import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { RegistryError } from '../../../src/registry/registry-error.ts'
import { isRepositoryName } from '../../../src/registry/records/repo-paths.ts'
import { parseOciPath } from '../../../src/registry/oci/oci-path.ts'

const hex = 'a'.repeat(64)
const digest = `sha256:${hex}`
const long = `sha512:${'b'.repeat(128)}`
const id = '01234567-89ab-4def-8123-456789abcdef'

function refusalOf(path: string): string {
  try {
    return JSON.stringify(parseOciPath(path))
  } catch (error) {
    if (error instanceof RegistryError) return `${error.status} ${error.code}`
    throw error
  }
}

describe('paths of the distribution specification', () => {
  const rows: [string, string, object][] = [
    ['the base', '/v2/', { kind: 'base' }],
    ['the catalogue', '/v2/_catalog', { kind: 'catalog' }],
    ['the base without its slash', '/v2', { kind: 'base' }],
    ['a manifest by tag', '/v2/org/app/manifests/v1.2_3-x', { kind: 'manifest', repository: 'org/app', reference: { kind: 'tag', tag: 'v1.2_3-x' } }],
    ['a manifest by digest', `/v2/org/app/manifests/${digest}`, { kind: 'manifest', repository: 'org/app', reference: { kind: 'digest', digest } }],
    ['a manifest by a sha512 digest', `/v2/o/a/manifests/${long}`, { kind: 'manifest', repository: 'o/a', reference: { kind: 'digest', digest: long } }],
    ['a manifest by what can be no tag', '/v2/o/a/manifests/.x', { kind: 'manifest', repository: 'o/a', reference: { kind: 'malformed', text: '.x' } }],
    [
      'a manifest by a digest whose colon is encoded',
      `/v2/o/a/manifests/sha256%3A${hex}`,
      { kind: 'manifest', repository: 'o/a', reference: { kind: 'digest', digest } },
    ],
    ['a blob whose colon is encoded in lowercase', `/v2/o/a/blobs/sha512%3a${'b'.repeat(128)}`, { kind: 'blob', repository: 'o/a', digest: long }],
    ['the referrers of one whose colon is encoded', `/v2/o/a/referrers/sha256%3A${hex}`, { kind: 'referrers', repository: 'o/a', digest }],
    ['a blob', `/v2/org/team/app/blobs/${digest}`, { kind: 'blob', repository: 'org/team/app', digest }],
    ['the place where uploads begin', '/v2/org/app/blobs/uploads/', { kind: 'uploads', repository: 'org/app' }],
    ['the same without its last slash', '/v2/org/app/blobs/uploads', { kind: 'uploads', repository: 'org/app' }],
    ['an upload', `/v2/org/app/blobs/uploads/${id}`, { kind: 'upload', repository: 'org/app', id }],
    ['the tags', '/v2/org/app/tags/list', { kind: 'tags', repository: 'org/app' }],
    ['the referrers of a manifest', `/v2/org/app/referrers/${digest}`, { kind: 'referrers', repository: 'org/app', digest }],
    ['the history of a tag', '/v2/org/team/app/_service/history/latest', { kind: 'history', repository: 'org/team/app', tag: 'latest' }],
    [
      'a repository that is called like a route',
      '/v2/org/manifests/tags/manifests/list',
      {
        kind: 'manifest',
        repository: 'org/manifests/tags',
        reference: { kind: 'tag', tag: 'list' },
      },
    ],
    ['a tag that is called like a route', '/v2/org/app/_service/history/manifests', { kind: 'history', repository: 'org/app', tag: 'manifests' }],
    ['a name of a single component', '/v2/app/tags/list', { kind: 'tags', repository: 'app' }],
    ['a name with every separator', '/v2/a.b_c__d-e---f/tags/list', { kind: 'tags', repository: 'a.b_c__d-e---f' }],
  ]
  test.each(rows)('%s', (_, path, parsed) => {
    expect(parseOciPath(path)).toEqual(parsed)
  })
})

describe('an invalid path is refused:', () => {
  const rows: [string, string, string][] = [
    ['the catalogue of an organisation', '/v2/org/_catalog', '404 UNSUPPORTED'],
    ['a parent path', '/v2/org/../other/manifests/x', '400 NAME_INVALID'],
    ['a path with a dot segment', '/v2/./org/app/manifests/x', '400 NAME_INVALID'],
    ['a reference with a parent path', '/v2/org/app/manifests/..', '400 NAME_INVALID'],
    ['an encoded parent path', '/v2/org/%2e%2e/other/manifests/x', '400 NAME_INVALID'],
    ['an encoded slash', '/v2/org%2Fapp/manifests/x', '400 NAME_INVALID'],
    ['an encoded colon in a name', `/v2/org%3Aapp/manifests/${digest}`, '400 NAME_INVALID'],
    ['an encoded colon after an unknown algorithm', `/v2/org/app/manifests/md5%3A00`, '400 NAME_INVALID'],
    ['a colon that is encoded twice', `/v2/org/app/manifests/sha256%253A${hex}`, '400 NAME_INVALID'],
    ['a backslash', '/v2/org\\app/manifests/x', '400 NAME_INVALID'],
    ['an empty segment', '/v2/org//app/manifests/x', '400 NAME_INVALID'],
    ['an empty first segment', '/v2//org/app/manifests/x', '400 NAME_INVALID'],
    ['a trailing slash', '/v2/org/app/tags/list/', '400 NAME_INVALID'],
    ['a semicolon', '/v2/org/app;x/tags/list', '400 NAME_INVALID'],
    ['a character outside of ASCII', '/v2/org/äpp/tags/list', '400 NAME_INVALID'],
    ['uppercase in the name', '/v2/Org/app/tags/list', '400 NAME_INVALID'],
    ['a name that begins with a separator', '/v2/org/-app/tags/list', '400 NAME_INVALID'],
    ['a name of underscores only', '/v2/org/a___b/tags/list', '400 NAME_INVALID'],
    ['a name that is too long', `/v2/${'a'.repeat(256)}/tags/list`, '400 NAME_INVALID'],
    ['no name', '/v2/tags/list', '400 NAME_INVALID'],
    ['a blob under a truncated digest', `/v2/org/app/blobs/sha256:${hex.slice(1)}`, '400 DIGEST_INVALID'],
    ['a blob under an uppercase digest', `/v2/org/app/blobs/sha256:${hex.toUpperCase()}`, '400 DIGEST_INVALID'],
    ['a manifest under an unknown algorithm', '/v2/org/app/manifests/md5:00', '400 DIGEST_INVALID'],
    ['an upload under an invalid id', '/v2/org/app/blobs/uploads/xyz', '404 BLOB_UPLOAD_UNKNOWN'],
    ['uploads outside of blobs', '/v2/org/app/uploads/', '404 UNSUPPORTED'],
    ['another list of tags', '/v2/org/app/tags/all', '404 UNSUPPORTED'],
    ['an unknown route', '/v2/org/app/layers/x', '404 UNSUPPORTED'],
    ['a route named like an object property', '/v2/org/app/constructor/x', '404 UNSUPPORTED'],
    ['another version', '/v1/org/app/tags/list', '404 UNSUPPORTED'],
    ['history without a tag', '/v2/org/app/_service/history/.x', '404 MANIFEST_UNKNOWN'],
  ]
  test.each(rows)('%s', (_, path, refusal) => {
    expect(refusalOf(path)).toBe(refusal)
  })

  test('any path is parsed to valid names, tags, ids and digests only', () => {
    const pieces = [
      'v2',
      '..',
      '.',
      '',
      'org',
      'app',
      'manifests',
      'blobs',
      'uploads',
      'tags',
      'list',
      '%2e',
      '_service',
      'history',
      digest,
      id,
      'latest',
      'ORG',
    ]
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.constantFrom(...pieces), fc.string({ maxLength: 8 })), { maxLength: 8 }), (segments) => {
        let parsed: ReturnType<typeof parseOciPath>
        try {
          parsed = parseOciPath(`/v2/${segments.join('/')}`)
        } catch (error) {
          expect(error).toBeInstanceOf(RegistryError)
          return
        }
        if (parsed.kind === 'base' || parsed.kind === 'catalog') return
        expect(isRepositoryName(parsed.repository)).toBe(true)
        expect(JSON.stringify(parsed)).not.toMatch(/\.\.\/|%|\\\\\//)
      }),
      { numRuns: 2_000 },
    )
  })
})
