import { createHash } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { trustedUid } from '../../src/base/uid.ts'
import type { AdvisoryFilter, FacetValues } from '../../src/cache/lists/advisory-source.ts'
import { AdvisoryBuilder } from '../../src/catalogue/advisories/advisory-builder.ts'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { AdvisoryEventSchema, AdvisorySchema, ReviewState } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { rowsOfCatalogue, type MeasuredCatalogue } from './pages-of-catalogue.ts'

const group = trustedUid('c'.repeat(40))
const anyOf = (...values: FacetValues[]): Partial<AdvisoryFilter> => ({ anyOf: values })
const filters: Readonly<Record<string, Partial<AdvisoryFilter>>> = {
  'no filter': {},
  'one of 5 types': anyOf(['artifactType', ['type-1']]),
  'two types': anyOf(['artifactType', ['type-1', 'type-2']]),
  'one of 10 authors': anyOf(['eventAuthor', ['author-7']]),
  'two filters': anyOf(['artifactType', ['type-1']], ['eventAuthor', ['author-7']]),
  'without an author': { noneOf: [['eventAuthor', ['author-7']]] },
  'query with few results': { text: 'package-77' },
  'query with all results': { text: 'package' },
}

function build(path: string, count: number): void {
  const builder = new AdvisoryBuilder({ path, group, isNew: true })
  for (let at = 0; at < count; at += 1) {
    const spread = (at * 2_654_435_761) % 2 ** 32
    const createTime = timestampFromMs(Date.UTC(2020, 0) + spread)
    const event = create(AdvisoryEventSchema, { createTime, author: `author-${spread % 10}`, reviewState: ReviewState.APPROVED })
    const advisory = create(AdvisorySchema, {
      advisoryId: `ID-${at}`,
      createTime,
      updateTime: timestampFromMs(Date.UTC(2021, 0) + ((spread * 7) % 2 ** 32)),
      artifactName: `package-${spread % (count / 10)}`,
      artifactType: `type-${at % 5}`,
      aliases: [`ALIAS-${at}`],
      events: [event],
    })
    builder.put({ segment: createHash('sha256').update(String(at)).digest('hex').slice(0, 16), origin: `package-${at % 1_000}`, advisory })
  }
  builder.finish({ source: 'bench', nowMs: 0 })
}

type Lists = MeasuredCatalogue<AdvisoryReader>['lists']

const lists = Object.fromEntries(
  Object.entries(filters).map(([name, filter]): [string, Lists[string]] => {
    const whole = { groups: [group], uids: undefined, anyOf: [], noneOf: [], text: '', ...filter }
    return [
      name,
      (reader, part) => {
        const { advisories, total } = reader.page({ filter: whole, ...part })
        return { last: advisories.at(-1), total }
      },
    ]
  }),
)

/** Lists of advisories from a catalogue. */
export const catalogueRows = rowsOfCatalogue(
  { name: 'catalogue', records: 'advisories', build, open: (path) => new AdvisoryReader(path), lists },
  'pages of advisories: many against 10,000, the first answer for a filter, and a list that skips half of them again',
)
