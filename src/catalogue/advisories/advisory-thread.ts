import type { TaskThread, TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type {
  AdvisoryPage,
  AdvisoryQuery,
  AdvisorySource,
  DocumentExport,
  OriginAdvisory,
  OriginDocument,
  OriginQuery,
  OsvPage,
  OsvPageQuery,
  PackageAdvisory,
  PackageAdvisoryQuery,
} from '../../cache/lists/advisory-source.ts'
import { openThread, RecentQueries } from '../files/open-thread.ts'
import type { AdvisoryTask } from './advisory-worker.ts'

/** A catalogue of advisories that a thread of its own reads. */
export class AdvisoryThread implements AdvisorySource {
  readonly #thread: TaskThread<AdvisoryTask>
  readonly #groups: readonly Uid[]
  readonly #recent = new RecentQueries<AdvisoryTask>()

  private constructor(thread: TaskThread<AdvisoryTask>, groups: readonly Uid[]) {
    this.#thread = thread
    this.#groups = groups
  }

  /** Opens the file. It first answers what `before` was asked last. Rejects if it is no catalogue of this version. */
  static async open(path: string, before?: AdvisorySource): Promise<AdvisoryThread> {
    const recent = before instanceof AdvisoryThread ? before.#recent : undefined
    const start = { path, first: { kind: 'groups' }, recent } as const
    const { thread, answer } = await openThread<AdvisoryTask>(new URL('advisory-worker.ts', import.meta.url), start)
    return new AdvisoryThread(thread, answer as readonly Uid[]) // the answer to this task
  }

  groups(): readonly Uid[] {
    return this.#groups
  }

  get(uid: Uid): Promise<Uint8Array | undefined> {
    return this.#thread.ask({ kind: 'get', uid }) as Promise<Uint8Array | undefined> // the answer to this task
  }

  page({ order, ...query }: AdvisoryQuery, turn: TaskTurn): Promise<AdvisoryPage> {
    const sent = { ...query, terms: order.terms }
    this.#recent.note({ kind: 'page', query: { ...sent, after: undefined } }, query.filter.groups.length)
    return this.#thread.ask({ kind: 'page', query: sent }, turn) as Promise<AdvisoryPage> // the answer to this task
  }

  byOrigin(query: OriginQuery, turn: TaskTurn): Promise<readonly OriginAdvisory[] | undefined> {
    return this.#thread.ask({ kind: 'byOrigin', query }, turn) as Promise<readonly OriginAdvisory[] | undefined> // the answer to this task
  }

  ofPackages(query: PackageAdvisoryQuery, turn: TaskTurn): Promise<readonly PackageAdvisory[] | undefined> {
    return this.#thread.ask({ kind: 'ofPackages', query }, turn) as Promise<readonly PackageAdvisory[] | undefined> // the answer to this task
  }

  unscored(query: OriginDocument, turn: TaskTurn): Promise<readonly (readonly string[])[]> {
    return this.#thread.ask({ kind: 'unscored', query }, turn) as Promise<readonly (readonly string[])[]> // the answer to this task
  }

  exportDocument(query: DocumentExport, turn: TaskTurn): Promise<Uint8Array | undefined> {
    return this.#thread.ask({ kind: 'exportDocument', query }, turn) as Promise<Uint8Array | undefined> // the answer to this task
  }

  osvPage(query: OsvPageQuery, turn: TaskTurn): Promise<OsvPage> {
    return this.#thread.ask({ kind: 'osvPage', query }, turn) as Promise<OsvPage> // the answer to this task
  }

  /** Closes the file after the queries that run. */
  close(): Promise<void> {
    return this.#thread.close()
  }
}
