import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { LifeCycleDeprecation } from '../../../src/contents/lifecycle/deprecation-job.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import type { TestManifest } from '../../registry/oci/oci-client.ts'
import { importProduct } from '../../support/import-advisories.ts'
import { ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { isFullTier } from '../../support/tier.ts'
import { makeImageWorld, pushAnnotated, pushManifest, type ImageWorld } from '../counts/image-world.ts'

const dayMs = 24 * 3_600_000
const alive = new AbortController().signal
const clock = new TestClock()
let server: TestServer
beforeAll(async () => {
  // The test runs the job itself.
  server = await startTestServer({ store: 'sqlite', clock, leads: false })
})
afterAll(() => server.stop())

const versions = ['1', '2', '3'] as const
const stepOf = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('push' as const), image: fc.nat({ max: versions.length }) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('write' as const), deprecated: fc.boolean(), image: fc.option(fc.nat({ max: versions.length })) }) },
  fc.record({ kind: fc.constant('dates' as const), days: fc.array(fc.constantFrom(-1, 1, 400), { minLength: versions.length, maxLength: versions.length }) }),
  fc.record({ kind: fc.constant('wait' as const), days: fc.constantFrom(1, 3) }),
  fc.constant({ kind: 'restart' as const }),
)
type Step = typeof stepOf extends fc.Arbitrary<infer T> ? T : never

/** Who decided about the tag, as people would say it. */
class NaiveTag {
  image = 0
  /** The last day of each version, as a number of days since 1970; undefined if it is not known. */
  ends: readonly (number | undefined)[] = []
  isSetByPeople = false
  /** The image for which people cleared it last. */
  cleared: number | undefined

  /** True if the tag is deprecated after the life cycle has been followed. */
  settle(today: number): boolean {
    const end = this.ends[this.image]
    const isInactive = end !== undefined && today > end
    if (!this.isSetByPeople && isInactive && this.cleared !== this.image) this.cleared = undefined
    return this.isSetByPeople || (isInactive && this.cleared !== this.image)
  }

  /** People write the tag. `wasDeprecated` is what it was before. */
  write(deprecated: boolean, image: number, wasDeprecated: boolean): void {
    if (deprecated) this.cleared = undefined
    else if (wasDeprecated) this.cleared = this.image
    this.isSetByPeople = deprecated
    this.image = image
  }
}

/** A repo with one tag, and the job that follows its life cycle. */
class Stage {
  readonly #world: ImageWorld
  readonly #product: string
  /** One of each version, and one of a version that is always supported. */
  readonly #images: readonly TestManifest[]
  #job = new LifeCycleDeprecation(server.running.engine.services, { readsContents: false })
  #end = this.#job.follow()

  constructor(world: ImageWorld, { product, images }: { readonly product: string; readonly images: readonly TestManifest[] }) {
    this.#world = world
    this.#product = product
    this.#images = images
  }

  static async make(): Promise<Stage> {
    const world = await makeImageWorld(server)
    const product = await importProduct(server, world.group, [{ cycle: '0', eol: false }])
    const images: TestManifest[] = []
    for (const version of [...versions, '0']) images.push(await pushAnnotated(world, '', { title: product, version }))
    return new Stage(world, { product, images })
  }

  manifest(image: number): TestManifest {
    const found = this.#images[image]
    if (found === undefined) throw new Error('no such image')
    return found
  }

  push(image: number): Promise<unknown> {
    return pushManifest(this.#world, 'app', this.manifest(image))
  }

  async write(image: number, deprecated: boolean): Promise<void> {
    const tag = { name: 'app', digest: this.manifest(image).digest, deprecated }
    ok(await server.rest.call('CreateTag', { parent: this.#world.repo, tag }, { token: await server.tokenFor(this.#world.owner) }))
  }

  async date(days: readonly number[]): Promise<void> {
    const cycles = versions.map((cycle, at) => ({ cycle, eol: new Date((days[at] ?? 0) * dayMs).toISOString().slice(0, 10) }))
    await importProduct(server, this.#world.group, [...cycles, { cycle: '0', eol: false }], this.#product)
  }

  restart(): void {
    this.#end()
    this.#job = new LifeCycleDeprecation(server.running.engine.services, { readsContents: false })
    this.#end = this.#job.follow()
  }

  /** Follows the life cycle, twice. Resolves with whether the tag is deprecated. */
  async settle(): Promise<boolean> {
    await this.#job.run(alive)
    const [tag] = await this.#tags()
    await this.#job.run(alive)
    expect(await this.#tags()).toEqual([tag])
    return tag?.['deprecated'] === true
  }

  close(): void {
    this.#end()
  }

  async #tags() {
    const answer = ok(
      await server.rest.call('ListTags', { uidp: { childrenOf: this.#world.repo }, name: 'app' }, { token: await server.tokenFor(this.#world.owner) }),
    )
    return answer['tags'] as Record<string, unknown>[]
  }
}

async function take(step: Step, { stage, naive, wasDeprecated }: { stage: Stage; naive: NaiveTag; wasDeprecated: boolean }): Promise<void> {
  switch (step.kind) {
    case 'push':
      await stage.push(step.image)
      naive.image = step.image
      return
    case 'write': {
      const image = step.image ?? naive.image
      await stage.write(image, step.deprecated)
      naive.write(step.deprecated, image, wasDeprecated)
      return
    }
    case 'dates': {
      const ends = step.days.map((days) => Math.floor(clock.now() / dayMs) + days)
      await stage.date(ends)
      naive.ends = ends
      return
    }
    case 'wait':
      clock.advance(step.days * dayMs)
      return
    case 'restart':
      stage.restart()
  }
}

// docs/spec/registry.md#deprecation-by-life-cycle
test('a tag is deprecated as its life cycle and people say, whatever is pushed, written, imported and restarted', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(stepOf, { minLength: 4, maxLength: 14 }), async (steps) => {
      const stage = await Stage.make()
      try {
        const naive = new NaiveTag()
        await stage.push(naive.image)
        let wasDeprecated = await stage.settle()
        for (const step of steps) {
          await take(step, { stage, naive, wasDeprecated })
          wasDeprecated = await stage.settle()
          expect(wasDeprecated).toBe(naive.settle(Math.floor(clock.now() / dayMs)))
        }
      } finally {
        stage.close()
      }
    }),
    { numRuns: isFullTier ? 30 : 8 },
  )
})
