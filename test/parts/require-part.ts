import { env } from 'node:process'
import { describe, test } from 'vitest'
import { ensurePart } from '../../tools/parts.js'

declare module 'vitest' {
  interface TaskMeta {
    /** Why the tests of a suite are skipped: the one-line reason, which the reporter prints. */
    missingPart?: string
  }
}

type PartName = Parameters<typeof ensurePart>[0]

/** The part's program, found or built. Throws an Error with the one-line reason where this machine can't provide it. */
export function requirePart(name: PartName): string {
  const part = ensurePart(name)
  if ('reason' in part) throw new Error(part.reason)
  return part.path
}

/**
 * A `describe` whose tests need a real part: `body` gets the path of its program. Where the machine can't provide it the tests are
 * reported as skipped, with the reason in the title; with REQUIRE_ALL_PARTS=1 they fail.
 */
export function describeWithPart(name: PartName, title: string, body: (path: string) => void): void {
  const part = ensurePart(name)
  if ('path' in part) {
    describe(title, () => body(part.path))
  } else if (env['REQUIRE_ALL_PARTS'] === '1') {
    test(title, () => {
      throw new Error(part.reason)
    })
  } else {
    describe.skip(`${title} (${part.reason})`, { meta: { missingPart: part.reason } }, () => body(''))
  }
}
