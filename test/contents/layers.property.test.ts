import fc from 'fast-check'
import { expect, test } from 'vitest'
import { packagesOfLayers } from '../../src/contents/index.ts'
import { piecesOf, tarOf, type TestEntry } from './tar-of.ts'

/** A file system as a list of paths: path -> the name of the package there, or undefined for what has none. */
class NaiveFiles {
  readonly files = new Map<string, { readonly name: string | undefined; readonly layer: number; readonly isFolder: boolean }>()

  apply(entries: readonly TestEntry[], layer: number): void {
    for (const { path, type, data } of entries) {
      const [, folder = '', hidden = ''] = /^(.*?)\/?\.wh\.(.*)$/.exec(path) ?? []
      const below = folder === '' ? '' : `${folder}/`
      if (hidden === '.wh..opq') this.#removeIf((known, at) => known.startsWith(below) && at < layer)
      else if (hidden !== '') this.#removeIf((known, at) => (known === `${below}${hidden}` || known.startsWith(`${below}${hidden}/`)) && at < layer)
      else {
        const isFolder = type === '5'
        this.#removeIf((known) => path.startsWith(`${known}/`) && this.files.get(known)?.isFolder === false)
        this.#removeIf((known) => known === path || (!isFolder && known.startsWith(`${path}/`)))
        const [, name] = /"name":"(\w+)"/.exec(String(data ?? '')) ?? []
        this.files.set(path, { name: type === '0' ? name : undefined, layer, isFolder })
      }
    }
  }

  packages(): string[] {
    return [...this.files].flatMap(([path, { name }]) => (name === undefined ? [] : [`${name} /${path}`])).sort()
  }

  #removeIf(isRemoved: (path: string, layer: number) => boolean): void {
    for (const [path, { layer }] of [...this.files]) if (isRemoved(path, layer)) this.files.delete(path)
  }
}

const folder = fc.array(fc.constantFrom('a', 'b', 'package.json'), { maxLength: 3 }).map((names) => names.join('/'))
const name = fc.constantFrom('a', 'b', 'package.json')
const at = (parent: string, child: string): string => (parent === '' ? child : `${parent}/${child}`)

const entry: fc.Arbitrary<TestEntry> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.tuple(folder, fc.nat(999)).map(([parent, id]) => ({ path: at(parent, 'package.json'), type: '0', data: `{"name":"p${id}","version":"1"}` })),
  },
  { weight: 1, arbitrary: fc.tuple(folder, name).map(([parent, child]) => ({ path: at(parent, child), type: '0', data: '{}' })) },
  { weight: 1, arbitrary: fc.tuple(folder, name).map(([parent, child]) => ({ path: at(parent, child), type: '2', link: 'a' })) },
  { weight: 2, arbitrary: fc.tuple(folder, name).map(([parent, child]) => ({ path: at(parent, child), type: '5' })) },
  { weight: 2, arbitrary: fc.tuple(folder, name).map(([parent, child]) => ({ path: at(parent, `.wh.${child}`), type: '0' })) },
  { weight: 1, arbitrary: folder.map((parent) => ({ path: at(parent, '.wh..wh..opq'), type: '0' })) },
)

test('layers with whiteouts give what a naive file system has', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(entry, { maxLength: 8 }), { maxLength: 5 }), async (layers) => {
      const naive = new NaiveFiles()
      layers.forEach((entries, layer) => naive.apply(entries, layer))
      const { packages } = await packagesOfLayers(
        layers.map((entries) => piecesOf(tarOf(entries))),
        new AbortController().signal,
      )
      expect(packages.flatMap((found) => found.locations.map((path) => `${found.name} ${path}`)).sort()).toEqual(naive.packages())
    }),
    { numRuns: 500 },
  )
})
