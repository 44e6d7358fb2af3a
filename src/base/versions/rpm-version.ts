import { compareDigits, compareLists, compareTexts, orderBy, type VersionOrder } from './version-order.ts'

/** The kinds of segments, lowest first. `end` is what follows the last one. */
const kinds = { tilde: 0, end: 1, caret: 2, letters: 3, digits: 4 } as const

interface Segment {
  readonly kind: (typeof kinds)[keyof typeof kinds]
  readonly text: string
}

interface RpmVersion {
  readonly epoch: string
  readonly version: readonly Segment[]
  readonly release: readonly Segment[]
}

const pattern = /^(?:(\d+):)?([^\s:-]+)(?:-([^\s-]+))?$/

function segmentsOf(text: string): Segment[] {
  return [...text.matchAll(/(~)|(\^)|(\d+)|[a-zA-Z]+/g)].map(([whole, tilde, caret, digits]) => {
    const kind = tilde !== undefined ? 'tilde' : caret !== undefined ? 'caret' : digits !== undefined ? 'digits' : 'letters'
    return { kind: kinds[kind], text: whole }
  })
}

function parse(text: string): RpmVersion | undefined {
  const [, epoch = '0', version, release = ''] = pattern.exec(text) ?? []
  return version === undefined ? undefined : { epoch, version: segmentsOf(version), release: segmentsOf(release) }
}

function compareSegments(a: Segment, b: Segment): number {
  return a.kind - b.kind || (a.kind === kinds.digits ? compareDigits(a.text, b.text) : compareTexts(a.text, b.text))
}

function compareAll(a: readonly Segment[], b: readonly Segment[]): number {
  return compareLists(a, b, { compare: compareSegments, missing: ({ kind }) => kind - kinds.end })
}

/** The order of packages that rpm installs: epoch, version and release (https://rpm.org/docs/latest/man/rpm-version.7). A version without a release is the oldest. */
export const rpmOrder: VersionOrder = orderBy({
  parse,
  compare: (a, b) => compareDigits(a.epoch, b.epoch) || compareAll(a.version, b.version) || compareAll(a.release, b.release),
})
