import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { handPickedMutants } from './hand-picked.ts'

const root = join(import.meta.dirname, '..', '..')

test('each hand-picked fault replaces text that its file has once, and names tests that exist', () => {
  const counts = handPickedMutants.map(({ breaks, file, from }) => [breaks, readFileSync(join(root, file), 'utf8').split(from).length - 1])
  expect(counts.filter(([, count]) => count !== 1)).toEqual([])
  expect(handPickedMutants.flatMap(({ tests }) => tests).filter((path) => !existsSync(join(root, path)))).toEqual([])
})
