import { trustedUid } from '../../src/base/uid.ts'
import { LibraryBuilder } from '../../src/catalogue/libraries/library-builder.ts'
import { LibraryReader } from '../../src/catalogue/libraries/library-reader.ts'
import type { ArtifactFilter } from '../../src/cache/lists/library-source.ts'
import { Ecosystem } from '../../src/gen/taproot/libraries/v2/artifacts_pb.ts'
import { rowsOfCatalogue, type MeasuredCatalogue } from './pages-of-catalogue.ts'

const ecosystems = [Ecosystem.PYTHON, Ecosystem.NPM, Ecosystem.JAVA] as const
/** Versions of each artifact, and of the first one, which is one of the largest that registries have. */
const [usual, most] = [20, 5_000]
const largest = 'library-largest'

function build(path: string, count: number): void {
  const builder = new LibraryBuilder({ path, isNew: true })
  for (let at = 0; at < count; at += 1) {
    const spread = (at * 2_654_435_761) % 2 ** 32
    const updateMs = Date.UTC(2021, 0) + ((spread * 7) % 2 ** 32)
    builder.put({
      ecosystem: ecosystems[at % ecosystems.length] ?? Ecosystem.PYTHON,
      name: at === 0 ? largest : `library-${spread % (count / 10)}-${at}`,
      description: `Does a thing, number ${at}`,
      latest: undefined,
      updateMs,
      cuda: at % 30 === 0 ? ['12.1'] : [],
      versions: Array.from({ length: at === 0 ? most : usual }, (_, version) => ({
        version: `1.${version}.${at % 7}`,
        createMs: Date.UTC(2020, 0) + spread + version,
        updateMs,
        sizeBytes: 1_000 + version,
        description: '',
        withdrawn: false,
      })),
    })
  }
  builder.finish({ source: 'bench', nowMs: 0 })
}

const filters: Readonly<Record<string, Partial<ArtifactFilter>>> = {
  'no filter': {},
  'one of 3 ecosystems': { ecosystems: [Ecosystem.JAVA] },
  'a CUDA version': { cuda: '12.1' },
  'query with few results': { text: 'library-77' },
  'query with all results': { text: 'library' },
}

type Lists = MeasuredCatalogue<LibraryReader>['lists']

const lists: Lists = {
  ...Object.fromEntries(
    Object.entries(filters).map(([name, filter]): [string, Lists[string]] => {
      const whole = { ecosystems, text: '', cuda: undefined, remediated: false, ...filter }
      return [
        name,
        (reader, part) => {
          const { artifacts, total } = reader.artifacts({ filter: whole, ...part })
          return { last: artifacts.at(-1), total }
        },
      ]
    }),
  ),
  'versions of the largest artifact': (reader, { order, after, skip, limit }) => {
    const place = after === undefined ? undefined : { ...after, version: after.name }
    const page = reader.versions({ artifact: `python:${largest}`, terms: order.terms, after: place, skip, limit })
    const last = page?.versions.at(-1)
    return { last: last === undefined ? undefined : { ...last, uid: trustedUid(last.uid), name: last.version }, total: page?.total ?? 0 }
  },
}

/** Lists of artifacts from a catalogue: each has 20 versions. */
export const libraryRows = rowsOfCatalogue(
  { name: 'libraries', records: 'artifacts with 20 versions each', build, open: (path) => new LibraryReader(path), lists },
  'pages of artifacts: many against 10,000, the first answer for a filter, and a list that skips half of them again',
)
