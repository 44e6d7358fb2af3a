import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import type { JsonObject } from '@bufbuild/protobuf'
import { PackageURL } from 'packageurl-js'
import { expect, test } from 'vitest'
import yauzl from 'yauzl'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { freshName, makeOrganisation, type Organisation } from '../../support/test-server.ts'
import { specSuite, type Spec } from './spec-suite.ts'

const publicName = 'public-exports'
const publicGroups = new WeakMap<object, Promise<Organisation>>()

/** The public organisation of a server. */
function publicOf({ server }: Spec): Promise<Organisation> {
  const known = publicGroups.get(server) ?? makeOrganisation(server, publicName)
  publicGroups.set(server, known)
  return known
}

const about = (name: string): JsonObject => ({
  package: { ecosystem: 'PyPI', name },
  ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '1.2.3' }] }],
})

function get({ server }: Spec, path: string, { token, ...headers }: Record<string, string> = {}): Promise<Response> {
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` }
  return fetch(`${server.config.baseUrl}/advisory/v2/${path}`, { headers: { ...headers, ...authorization } })
}

/** The JSON files in a zip, by name. */
async function filesIn(bytes: Buffer): Promise<Map<string, unknown>> {
  const zip = await yauzl.fromBufferPromise(bytes)
  const files = new Map<string, unknown>()
  for await (const entry of zip.eachEntry()) {
    const pieces: Buffer[] = []
    for await (const piece of await zip.openReadStreamPromise(entry)) pieces.push(piece as Buffer)
    files.set(entry.fileName, JSON.parse(Buffer.concat(pieces).toString()))
  }
  return files
}

async function zipOf(spec: Spec, headers: Record<string, string> = {}): Promise<Map<string, unknown>> {
  const response = await get(spec, 'osv.zip', headers)
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/zip'])
  return filesIn(Buffer.from(await response.arrayBuffer()))
}

// docs/spec/advisories.md#advisory-exports
specSuite(
  'advisory exports',
  (spec) => {
    test.each(['openvex', 'csaf'])('as %s, a statement about an image names it with its digest', async (format) => {
      const { group } = await publicOf(spec)
      const name = freshName('app')
      const image = `pkg:oci/${name}@sha256%3A${'a'.repeat(64)}?repository_url=registry.example.com/acme/${name}`
      const products = [{ '@id': image, subcomponents: [{ '@id': 'pkg:apk/alpine/musl' }] }]
      await importDocuments(spec.server, group, [
        {
          ...{ '@context': 'https://openvex.dev/ns/v0.2.0', '@id': 'https://example.com/vex', author: name, timestamp: '2026-04-01T00:00:00Z', version: 1 },
          statements: [{ vulnerability: { name: 'CVE-2026-1001' }, products, status: 'not_affected', impact_statement: 'not called' }],
        },
      ])
      const response = await get(spec, `documents/${name}?format=${format}`)
      expect(await response.text()).toContain(JSON.stringify(PackageURL.fromString(image).toString()))
    })

    test('a document in each form, by Accept and by format', async () => {
      const { group } = await publicOf(spec)
      const name = freshName('pkg')
      await importDocuments(spec.server, group, [osvDocument(`PYSEC-${name}`, { aliases: ['CVE-2026-1001'], affected: [about(name)] })])
      const own = await get(spec, `documents/${name}`)
      expect([own.headers.get('content-type'), await own.json()]).toEqual([
        'application/json; charset=utf-8',
        { id: name, advisories: [expect.objectContaining({ id: `PYSEC-${name}`, packageNamespace: 'PyPI' })] },
      ])
      const purl = `pkg:pypi/${name}`
      const forms = {
        openvex: { author: publicName, statements: [{ status: 'under_investigation' }, { status: 'fixed', products: [{ '@id': `${purl}@1.2.3` }] }] },
        csaf: {
          document: { category: 'csaf_vex', tracking: { id: name } },
          vulnerabilities: [{ cve: 'CVE-2026-1001', product_status: { fixed: [`${purl}@1.2.3`] } }],
        },
        osv: [{ id: `PYSEC-${name}`, affected: [{ package: { ecosystem: 'PyPI', name, purl } }] }],
      }
      for (const [form, content] of Object.entries(forms)) {
        const type = `application/vnd.${form}+json`
        for (const response of [
          await get(spec, `documents/${name}?format=${form}`),
          await get(spec, `documents/${name}`, { accept: `${type}; charset=utf-8` }),
        ]) {
          expect([response.status, response.headers.get('content-type')]).toEqual([200, type])
          expect(await response.json()).toMatchObject(content)
        }
      }
    })

    test('CSAF has the scores that the metadata has for an alias', async () => {
      const { group } = await publicOf(spec)
      const name = freshName('pkg')
      const score = 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H'
      await importDocuments(spec.server, group, [
        osvDocument(`PYSEC-${name}`, { aliases: [`CVE-${name}`], affected: [{ package: { ecosystem: 'PyPI', name } }] }),
        osvDocument(`CVE-${name}`, { affected: [], severity: [{ type: 'CVSS_V3', score }] }),
      ])
      const scored = [{ products: [`pkg:pypi/${name}`], cvss_v3: { version: '3.1', vectorString: score, baseScore: 9.8, baseSeverity: 'CRITICAL' } }]
      expect(await (await get(spec, `documents/${name}?format=csaf`)).json()).toMatchObject({ vulnerabilities: [{ scores: scored }] })
    })

    test('names with slashes', async () => {
      const { group } = await publicOf(spec)
      const name = `@example/${freshName('pkg')}`
      await importDocuments(spec.server, group, [osvDocument(freshName('A'), { affected: [{ package: { ecosystem: 'npm', name } }] })])
      for (const path of [name, encodeURIComponent(name)]) expect(await (await get(spec, `documents/${path}?format=json`)).json()).toMatchObject({ id: name })
    })

    test.each([
      ['an unknown package', 'documents/no-such-package?format=csaf', {}, 404],
      ['an unknown package in the own form', 'documents/no-such-package', {}, 404],
      ['an unknown form', 'documents/a?format=constructor', {}, 400],
      ['a media type that is not there', 'documents/a', { accept: 'text/html' }, 406],
      ['a name that is too long', `documents/${'a'.repeat(513)}`, {}, 400],
    ])('refused: %s', async (_, path, headers, status) => {
      const response = await get(spec, path, headers)
      expect(response.status).toBe(status)
      expect(await response.json()).toMatchObject({ code: expect.any(Number) as number, message: expect.any(String) as string })
    })

    test('everyone sees the public organisation, and a caller also their own groups', async () => {
      const open = await publicOf(spec)
      const own = await makeOrganisation(spec.server)
      const other = await makeOrganisation(spec.server)
      const name = freshName('pkg')
      const ids = ['public', 'own', 'other'].map((who) => `PYSEC-${who}-${name}`)
      for (const [at, { group }] of [open, own, other].entries())
        await importDocuments(spec.server, group, [osvDocument(ids[at] ?? '', { affected: [about(name)] })])
      const seen = async (headers: Record<string, string>): Promise<string[]> => {
        const documents = (await (await get(spec, `documents/${name}?format=osv`, headers)).json()) as { id: string }[]
        const files = [...(await zipOf(spec, headers)).keys()].filter((file) => file.endsWith(`${name}.json`))
        expect(files).toEqual(documents.map(({ id }) => `${id}.json`).sort())
        return documents.map(({ id }) => id).sort()
      }
      expect(await seen({})).toEqual(ids.slice(0, 1))
      expect(await seen({ token: 'garbage' })).toEqual(ids.slice(0, 1))
      expect(await seen({ token: own.token })).toEqual(ids.slice(0, 2).sort())
      expect(await seen({ token: other.token })).toEqual([ids[0], ids[2]].sort())
    })

    test('a zip of several parts: each id is there once, with all its packages', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const name = freshName('pkg')
      const ids = Array.from({ length: 450 }, (_, at) => `PYSEC-${name}-${String(at)}`)
      await importDocuments(
        spec.server,
        group,
        [...ids, `../${name}/é`].map((id) => osvDocument(id, { affected: [about(name), about(`${name}-two`)] })),
      )
      const files = await zipOf(spec, { token })
      const own = [...files].filter(([file]) => file.includes(name))
      expect(own.map(([file]) => file).sort()).toEqual([...ids.map((id) => `${id}.json`), `..%2F${name}%2F%C3%A9.json`].sort())
      for (const [, document] of own) expect(document).toMatchObject({ affected: [{ package: { ecosystem: 'PyPI' } }, { package: { ecosystem: 'PyPI' } }] })
    })

    test('a caller has one download at a time, and one that breaks off makes room; a change of the catalogue cuts it', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const noise = (): string => randomBytes(250).toString('hex')
      // More than the buffers between server and client hold.
      const documents = Array.from({ length: 1_600 }, () => osvDocument(freshName('A'), { aliases: Array.from({ length: 12 }, noise) }))
      await importDocuments(spec.server, group, documents)
      const url = `${spec.server.config.baseUrl}/advisory/v2/osv.zip`
      const headers = { authorization: `Bearer ${token}` }
      const first = http.get(url, { headers })
      const [response] = (await once(first, 'response')) as [http.IncomingMessage]
      expect(response.statusCode).toBe(200)
      const second = await get(spec, 'osv.zip', { token })
      expect([second.status, second.headers.get('retry-after'), await second.json()]).toEqual([429, '5', expect.objectContaining({ code: 8 })])
      expect((await get(spec, 'osv.zip')).status).toBe(200)

      // The catalogue changes: a zip of two moments would look whole, so this one is cut.
      await importDocuments(spec.server, group, [osvDocument(freshName('B'))])
      const cut = expect(once(response, 'end')).rejects.toThrow('aborted')
      response.resume()
      await cut

      const broken = http.get(url, { headers })
      await once(broken, 'response')
      broken.destroy()
      await expect.poll(async () => (await fetch(url, { headers, method: 'HEAD' })).status).toBe(200)
      const all = await zipOf(spec, { token })
      expect(all.size).toBeGreaterThanOrEqual(documents.length)
    })
  },
  { env: { TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName }, transports: ['rest'] },
)
