import { expect, test } from 'vitest'
import type { ApiClient, Reply } from '../../support/api-clients.ts'
import type { Sample } from '../../support/tier.ts'
import { answerAbout, ask, forEach, missingIn, nowhere } from './asking.ts'
import { callerRows, places, type CallerName, type CallerRow, type Place } from './callers.ts'
import { expectedCode } from './expected.ts'
import { scopedMethods } from './methods.ts'
import type { ScopedRow } from './rows/scoped-row.ts'
import type { MatrixWorld, Things } from './world.ts'

/** The server and callers of a suite of the matrix. */
export interface Ground {
  readonly world: () => MatrixWorld
  readonly apiClient: () => ApiClient
  /** Returns the cells to try: at least one of each kind, or a few. */
  readonly chosen: <Cell>(cells: readonly Cell[], by: Pick<Sample<Cell>, 'nameOf' | 'kindOf'>) => readonly Cell[]
}

interface Target {
  readonly uid: string
  readonly things: Things
}

/** Returns the target of a request in a place. */
function targetIn({ things }: MatrixWorld, { about }: ScopedRow, place: Place): Target {
  const own = things.own
  if (place === 'missing') return { uid: nowhere(own[about]), things: own }
  if (place === 'missing in own') return { uid: missingIn(own.place, own[about]), things: own }
  return { uid: things[place][about], things: things[place] }
}

/** One cell of the matrix. */
interface Cell {
  readonly name: CallerName
  readonly caller: CallerRow
  readonly place: Place
}

/** Every caller in every place. */
const cells: readonly Cell[] = callerRows.flatMap(([name, caller]) => places.map((place) => ({ name, caller, place })))

/** Equal for cells whose callers hold the same there: they differ in how they got it, which the methods do not see. */
function kindOf({ confers }: ScopedRow, { caller: { anonymous, only, standing }, place }: Cell): string {
  const there = place === 'missing in own' ? 'own' : place
  const held = there === 'missing' ? [] : [standing[there], ...(confers === 'at the root' && there !== 'other' ? [standing.ancestor] : [])]
  return JSON.stringify([place, anonymous, only, held])
}

/** One row of the matrix, with all its answers. */
class Tried {
  readonly #ground: Ground
  readonly #method: string
  readonly #row: ScopedRow
  readonly codes = new Map<string, number>()
  readonly expected = new Map<string, number>()
  /**
   * Every answer about a missing record, and about one that must look missing, to every caller, if the uid has that many parts.
   * Also the answers to callers without a token.
   */
  readonly blind = new Map<string, Set<string>>()
  /** Denials that revealed whether a record exists. */
  readonly differences: string[] = []

  constructor(ground: Ground, method: string, row: ScopedRow) {
    this.#ground = ground
    this.#method = method
    this.#row = row
  }

  #ask(name: CallerName, uid: string, things: Things): Promise<Reply> {
    const call = { name: this.#method, request: this.#row.request(uid, things), token: this.#ground.world().tokens[name] }
    // A dry run makes every check and changes nothing.
    return ask(this.#ground.apiClient(), { ...call, options: { validateOnly: true } })
  }

  #note(key: string, answer: string): void {
    this.blind.set(key, (this.blind.get(key) ?? new Set()).add(answer))
  }

  async try({ name, caller, place }: Cell): Promise<void> {
    const { uid, things } = targetIn(this.#ground.world(), this.#row, place)
    const reply = await this.#ask(name, uid, things)
    const key = `${name}, ${place}`
    this.codes.set(key, reply.code)
    const code = expectedCode(this.#row, caller, place)
    this.expected.set(key, code === 0 && this.#row.onlyRoots === true && uid.includes('/') ? 3 : code === 5 && this.#row.forgives === true ? 0 : code)
    if (reply.code === 5 || reply.code === 16) this.#note(`${reply.code}, ${uid.split('/').length}`, answerAbout(reply, uid))
    // A denial about the granted role depends on existing records.
    const { needs, operators } = this.#row
    if (reply.code !== 7 || expectedCode({ needs, ...(operators === undefined ? {} : { operators }) }, caller, place) !== 7) return
    const missing = missingIn(things.place, uid)
    const absent = await this.#ask(name, missing, things)
    if (answerAbout(reply, uid).replaceAll('<parent>', '') !== answerAbout(absent, missing).replaceAll('<parent>', ''))
      this.differences.push(`${key}: ${absent.raw}`)
  }

  /** Tries a uid of one part that does not exist, which no cell contains. */
  async tryRoot(): Promise<void> {
    const uid = nowhere('root')
    this.#note('5, 1', answerAbout(await this.#ask('an owner of the root', uid, this.#ground.world().things.own), uid))
  }
}

/** Tries every method of a place, for every caller, in every place. */
export function placesSuite(ground: Ground): void {
  test.each(Object.entries(scopedMethods))(
    '%s: only permitted callers succeed in each group; missing and foreign groups look the same',
    async (method, row) => {
      const tried = new Tried(ground, method, row)
      const chosen = ground.chosen(cells, { nameOf: ({ name, place }) => `${method} ${name} ${place}`, kindOf: (cell) => kindOf(row, cell) })
      await forEach(chosen, (cell) => tried.try(cell), row.atOnce)
      await tried.tryRoot()
      expect(Object.fromEntries([...tried.codes].sort())).toEqual(Object.fromEntries([...tried.expected].sort()))
      for (const [key, answers] of tried.blind) expect([...answers], key).toHaveLength(1)
      expect(tried.differences).toEqual([])
    },
  )
}
