import { spawnSync } from 'node:child_process'
import { env } from 'node:process'
import { describe, test, TestRunner } from 'vitest'
import { ensurePart, type PartName } from '../../../tools/parts.js'
import { chosenFor, runsAll } from '../tier.ts'

declare module 'vitest' {
  interface TaskMeta {
    /** The reason of skipped tests in one line, which the reporter prints. */
    missingPart?: string
  }
}

/**
 * The part's program, found or built. If this machine can't provide it, the running test is reported as skipped.
 * In a hook, or with REQUIRE_ALL_PARTS=1, it throws an Error with the one-line reason.
 */
export function requirePart(name: PartName): string {
  const part = ensurePart(name)
  if ('path' in part) return part.path
  if (env['REQUIRE_ALL_PARTS'] !== '1') skipFor(part.reason)
  throw new Error(part.reason)
}

/** Reports the running test as skipped with a one-line reason; throws it in a hook. */
export function skipFor(reason: string): never {
  const running = TestRunner.getCurrentTest()
  if (running !== undefined) {
    running.meta.missingPart = reason
    running.context.skip(reason)
  }
  throw new Error(reason)
}

/** A system program for tests of rare faults. If it is missing, the test is reported as skipped, even with REQUIRE_ALL_PARTS=1. */
export function requireTool(name: 'strace' | 'prlimit'): void {
  if (spawnSync(name, ['-V']).status !== 0) skipFor(`${name} is not installed`)
}

/**
 * A `describe` whose tests need a real part: `body` gets the path of its program. Where the machine can't provide it the tests are
 * reported as skipped, with the reason in the title; with REQUIRE_ALL_PARTS=1 they fail.
 */
export function describeWithPart(name: PartName, title: string, body: (path: string) => void): void {
  describeWithParts([name], title, ({ [name]: path = '' }) => body(path))
}

/** Like `describeWithPart`, for several parts: `body` gets the paths by name. The first missing part is the reason. */
export function describeWithParts(names: readonly PartName[], title: string, body: (paths: Readonly<Partial<Record<PartName, string>>>) => void): void {
  const parts = names.map((name) => ({ name, part: ensurePart(name) }))
  const reason = parts.flatMap(({ part }) => ('reason' in part ? [part.reason] : []))[0]
  describeUnless(reason, title, () => body(Object.fromEntries(parts.map(({ name, part }) => [name, 'path' in part ? part.path : '']))))
}

/** A `describe` whose tests are reported as skipped if there is a reason; with REQUIRE_ALL_PARTS=1 they fail instead. */
export function describeUnless(reason: string | undefined, title: string, body: () => void): void {
  if (reason === undefined) {
    describe(title, body)
  } else if (env['REQUIRE_ALL_PARTS'] === '1') {
    test(title, () => {
      throw new Error(reason)
    })
  } else {
    describe.skip(`${title} (${reason})`, { meta: { missingPart: reason } }, body)
  }
}

/** One `describe` for each store, `<title> on sqlite` and `<title> on etcd`; the latter needs etcd. */
export function describeOnStores(title: string, body: (store: 'sqlite' | 'etcd') => void): void {
  describeOnStoresWithParts([], title, body)
}

/**
 * Like `describeOnStores`, on one of both. The source tree decides which. For suites that reach the store only through code that all others use too.
 * In the full tier and with TAPROOT_SPEC_ALL=1 on both.
 */
export function describeOnChosenStore(title: string, body: (store: 'sqlite' | 'etcd') => void): void {
  const stores = ['sqlite', 'etcd'] as const
  const chosen = chosenFor(title, stores)
  for (const store of stores) if (runsAll || store === chosen) describeWithParts(store === 'etcd' ? ['etcd'] : [], `${title} on ${store}`, () => body(store))
}

/** Like `describeOnStores`, on SQLite alone, which costs least. In the full tier and with TAPROOT_SPEC_ALL=1 on both. */
export function describeOnStoresOfTier(title: string, body: (store: 'sqlite' | 'etcd') => void): void {
  if (runsAll) describeOnStores(title, body)
  else describe(`${title} on sqlite`, () => body('sqlite'))
}

/** Like `describeOnStores`, for tests that also need the parts of `describeWithParts`. */
export function describeOnStoresWithParts(names: readonly PartName[], title: string, body: (store: 'sqlite' | 'etcd') => void): void {
  describeWithParts(names, `${title} on sqlite`, () => body('sqlite'))
  describeWithParts(['etcd', ...names], `${title} on etcd`, () => body('etcd'))
}
