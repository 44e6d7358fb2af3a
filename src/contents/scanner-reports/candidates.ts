import type { Digest } from '../../base/digest.ts'
import { RecentMap } from '../../base/recent-map.ts'
import type { Uid } from '../../base/uid.ts'
import type { ImageName } from '../../cache/lists/contents-source.ts'
import { heldManifest, imageNotFound, indexGeneration, manifestGeneration, referrerGeneration, tagNamed, tagOf } from '../../registry/index.ts'
import type { NamedManifest, ReadableRepo } from '../reading/held-content.ts'
import { cosignTags, manifestsAbout, namesOf, predicateIn, type SbomManifest } from '../reading/sbom-candidates.ts'
import { reportPredicates } from './report.ts'

/** What a type says: `report`, or `envelope` of which a report may be one. */
export type Hint = 'report' | 'envelope'

/** A manifest that may have a report. */
export interface Candidate {
  readonly repo: Uid
  readonly digest: Digest
  readonly subject: Digest
  /** The digests by which statements can name the subject. */
  readonly names: readonly Digest[]
  /** The time of its push, in milliseconds since 1970. */
  readonly pushedMs: number
  readonly artifactType: string
  /** The predicate in its annotations; undefined if they name none. */
  readonly predicate: unknown
  /** What its type says; undefined if it says nothing about reports. */
  readonly hint: Hint | undefined
  /** The candidates of the least rank count first. */
  readonly rank: number
}

/** The candidates of an image, and what they depend on. All members of the basis are compared with `===`. */
interface Remembered {
  readonly basis: readonly unknown[]
  /** The subjects whose tags are in the basis. */
  readonly subjects: readonly NamedManifest[]
  readonly candidates: readonly Candidate[]
  readonly untilMs: number
}

/** Limits of one answer: the images of an index, and the manifests that count. */
const limits = { subjects: 100, manifests: 20 } as const
/** The memory for candidates, in characters. */
const rememberedCharacters = 4 * 1024 * 1024
/** Memory of one candidate or subject besides its texts. */
const overhead = 500
/** The longest time for which candidates are remembered, in milliseconds. */
const rememberedMs = 10_000

/** Types that are reports, and types of envelopes that may have one in them. */
const reportTypes = /sarif|grype|trivy|vuln|security\.vulnerability\.report/i
const envelopeTypes = /in-toto|dsse|sigstore\.bundle/i

/** The types of manifests that have none of their own: those of an empty config, and of images. Cosign writes the latter. */
const noTypes: ReadonlySet<string> = new Set([
  '',
  'application/vnd.oci.empty.v1+json',
  'application/vnd.oci.image.config.v1+json',
  'application/vnd.docker.container.image.v1+json',
])

function isReportPredicate(predicate: unknown): boolean {
  return typeof predicate === 'string' && reportPredicates.test(predicate)
}

/** True unless an annotation names a predicate that is no report. */
function mayBeReport(annotations: Readonly<Record<string, unknown>>): boolean {
  const predicate = predicateIn(annotations)
  return predicate === undefined || isReportPredicate(predicate)
}

/** Returns what types and the predicate in annotations say; undefined if it is nothing about reports. */
export function hintOf(types: string, predicate: unknown): Hint | undefined {
  if (predicate !== undefined && !isReportPredicate(predicate)) return undefined
  if (reportTypes.test(types) || predicate !== undefined) return 'report'
  return envelopeTypes.test(types) ? 'envelope' : undefined
}

/** Sorts the newest push first. */
function compareAges(one: Candidate, other: Candidate): number {
  return other.pushedMs - one.pushedMs || (one.digest < other.digest ? -1 : 1)
}

/** Returns the candidates that count, newest first. */
function newestOf(found: readonly Candidate[]): readonly Candidate[] {
  const best = found.toSorted((one, other) => one.rank - other.rank || compareAges(one, other)).slice(0, limits.manifests)
  return best.sort(compareAges)
}

function candidateOf({ digest, record, tag }: SbomManifest, { repo, subject }: { readonly repo: Uid; readonly subject: NamedManifest }): Candidate {
  const { artifactType, annotations, createTimeMs } = record
  const predicate = predicateIn(annotations)
  // Without a type of its own, its layers say what it is.
  const hint = hintOf(artifactType, predicate) ?? (tag === 'att' || noTypes.has(artifactType) ? 'envelope' : undefined)
  const rank = hint === 'report' || tag === 'att' ? 0 : hint === 'envelope' ? 1 : 2
  return { repo, digest, subject: subject.digest, names: namesOf(subject), pushedMs: Number(createTimeMs), artifactType, predicate, hint, rank }
}

function weightOf({ candidates, subjects }: Remembered): number {
  return candidates.reduce(
    (sum, { artifactType, predicate }) => sum + overhead + artifactType.length + String(predicate).length,
    overhead * (1 + subjects.length),
  )
}

/** Finds the manifests that may have reports. Remembers them for some seconds, while the manifests and tags of the repo stay. */
export class Candidates {
  readonly #referrers: number
  readonly #remembered = new RecentMap<string, Remembered>(rememberedCharacters, weightOf)

  /** `referrers` is the number of those that are looked at for one image or index, with its images. */
  constructor(referrers: number) {
    this.#referrers = referrers
  }

  /** Resolves with the manifests that may have reports, newest first. Rejects with code 5 if the repo does not hold the digest, with StoreError, or the signal's reason. */
  async of(content: ReadableRepo, { digest }: Pick<ImageName, 'digest'>, signal: AbortSignal): Promise<readonly Candidate[]> {
    const { services, repo } = content
    const key = `${repo} ${digest}`
    const known = this.#remembered.get(key)
    const generations = this.#generations(content)
    const record = await heldManifest(services, { repo, digest }, signal)
    if (record === undefined) throw imageNotFound(`${repo}@${digest}`)
    const nowMs = services.clock.now()
    if (known !== undefined && nowMs < known.untilMs && isSame(known.basis, [...generations, ...this.#tags(content, known.subjects)])) return known.candidates
    const subjects: NamedManifest[] = []
    const children = record.children.slice(0, limits.subjects).map((child) => child.digest as Digest) // a cast: records hold checked digests
    for (const subject of new Set([digest, ...children])) {
      const held = subject === digest ? record : await heldManifest(services, { repo, digest: subject }, signal)
      if (held !== undefined) subjects.push({ digest: subject, record: held, config: undefined, layers: [], children: [] })
    }
    const basis = [...generations, ...this.#tags(content, subjects)]
    const found = new Map<Digest, Candidate>()
    const referrers = { left: this.#referrers }
    for (const subject of subjects) {
      const wanted = { subject: { image: subject, index: undefined }, mayBe: mayBeReport, referrers }
      for (const one of await manifestsAbout(content, wanted, signal)) if (one.tag !== 'sbom') found.set(one.digest, candidateOf(one, { repo, subject }))
    }
    const candidates = newestOf([...found.values()])
    this.#remembered.set(key, { basis, subjects, candidates, untilMs: nowMs + rememberedMs })
    return candidates
  }

  #generations({ services, repo }: ReadableRepo): readonly unknown[] {
    const { tables } = services.cache
    return [manifestGeneration(tables, repo), indexGeneration(tables, repo), referrerGeneration(tables, repo)]
  }

  /** Returns the digests of cosign's tags of the subjects. */
  #tags({ services, repo }: ReadableRepo, subjects: readonly NamedManifest[]): readonly unknown[] {
    return subjects.flatMap(cosignTags).map((name) => {
      const tag = tagNamed(services.cache.tables, repo, name)
      return tag === undefined ? '' : tagOf(tag).digest
    })
  }
}

function isSame(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((value, at) => value === other[at])
}
