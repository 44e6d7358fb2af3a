import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { SemVer } from 'semver'
import { describe, expect, onTestFinished, test } from 'vitest'
import { debianOrder } from '../../../src/base/versions/debian-version.ts'
import { mavenOrder } from '../../../src/base/versions/maven-version.ts'
import { pep440Order } from '../../../src/base/versions/pep440-version.ts'
import { rpmOrder } from '../../../src/base/versions/rpm-version.ts'
import { goOrder, semanticOrder } from '../../../src/base/versions/semantic-version.ts'
import type { VersionOrder } from '../../../src/base/versions/version-order.ts'
import { requirePart, skipFor } from '../../support/parts/require-part.ts'
import { campaignLength } from '../../soak/factor.ts'

const pairs = campaignLength({ short: 200, full: 10_000 })

type Pair = readonly [one: string, other: string]

/** Runs a program with a text for its input. Returns the lines that it prints. Skips the test if it is not there. */
function linesOf(program: string, args: readonly string[], { input = '', cwd = tmpdir() }: { input?: string; cwd?: string } = {}): string[] {
  const { status, stdout, stderr, error } = spawnSync(program, args, { input, cwd, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
  if (error !== undefined) skipFor(`${program} is not installed`)
  if (status !== 0) throw new Error(`${program} failed: ${stderr}`)
  return stdout.trim().split('\n')
}

async function folderWith(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-versions-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  return folder
}

const inputOf = (all: readonly Pair[]): string => all.map((pair) => `${pair.join(' ')}\n`).join('')

function byDpkg(all: readonly Pair[]): number[] {
  const script = `while read -r one other; do
    if dpkg --compare-versions "$one" lt "$other"; then echo -1; elif dpkg --compare-versions "$one" eq "$other"; then echo 0; else echo 1; fi
  done`
  if (spawnSync('dpkg', ['--version']).error !== undefined) skipFor('dpkg is not installed')
  return linesOf('sh', ['-c', script], { input: inputOf(all) }).map(Number)
}

async function byRpm(all: readonly Pair[]): Promise<number[]> {
  const folder = await folderWith({ pairs: inputOf(all) })
  const script = `for line in io.lines("${join(folder, 'pairs')}") do local one, other = line:match("(%S+) (%S+)") io.write(rpm.vercmp(one, other), ' ') end`
  await writeFile(join(folder, 'compare.lua'), script)
  return (
    linesOf(requirePart('rpm'), ['--eval', `%{lua: dofile("${join(folder, 'compare.lua')}")}`])[0]
      ?.trim()
      .split(' ')
      .map(Number) ?? []
  )
}

function byPython(all: readonly Pair[]): number[] {
  const script = `import sys
from pip._vendor.packaging.version import Version
for line in sys.stdin:
    one, other = map(Version, line.split())
    print((one > other) - (one < other))`
  return linesOf('python3', ['-c', script], { input: inputOf(all) }).map(Number)
}

const mavenJars = '/usr/share/maven/lib'

async function byMaven(all: readonly Pair[]): Promise<number[]> {
  if (!existsSync(mavenJars)) skipFor('maven is not installed')
  const source = `import java.nio.file.*; import org.apache.maven.artifact.versioning.ComparableVersion;
public class Compare { public static void main(String[] args) throws Exception {
  for (String line : Files.readAllLines(Path.of("pairs"))) { String[] pair = line.split(" ");
    System.out.println(Integer.signum(new ComparableVersion(pair[0]).compareTo(new ComparableVersion(pair[1])))); } } }`
  const folder = await folderWith({ pairs: inputOf(all), 'Compare.java': source })
  return linesOf('java', ['-cp', `${mavenJars}/*`, 'Compare.java'], { cwd: folder }).map(Number)
}

const byGo = (all: readonly Pair[]): number[] => linesOf(requirePart('go-versions'), [], { input: inputOf(all) }).map(Number)

const byNpm = (all: readonly Pair[]): number[] => all.map(([one, other]) => new SemVer(one).compare(other))

const number = fc.constantFrom('0', '1', '2', '9', '10', '01', '00', '2026')
/** Often the same: then what follows decides. */
const dotted = fc.oneof(
  fc.constantFrom('1', '1.0', '1.0.0'),
  fc.array(number, { minLength: 1, maxLength: 4 }).map((parts) => parts.join('.')),
)
const plainNumber = fc.constantFrom('0', '1', '2', '9', '10', '99')
const core = fc.oneof(
  fc.constant('1.0.0'),
  fc.tuple(plainNumber, plainNumber, plainNumber).map((parts) => parts.join('.')),
)

function optional(text: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc.option(text, { nil: '' })
}

function joined(...parts: readonly fc.Arbitrary<string>[]): fc.Arbitrary<string> {
  return fc.tuple(...parts).map((texts) => texts.join(''))
}

/** Texts of some of these pieces. */
function some(pieces: readonly string[], maxLength: number, minLength = 0): fc.Arbitrary<string> {
  return fc.array(fc.constantFrom(...pieces), { minLength, maxLength }).map((parts) => parts.join(''))
}

const debian = joined(
  optional(fc.constantFrom('0:', '1:', '2:')),
  dotted,
  some(['~', '+', '.', 'a', 'Z', 'rc', '1', '0', '10', 'dfsg'], 4),
  optional(some(['1', '0', '~', '+', '.', 'a', 'deb12u', 'bpo'], 4, 1).map((text) => `-${text}`)),
)
const rpm = joined(
  optional(fc.constantFrom('0:', '1:', '2:')),
  dotted,
  some(['~', '^', '+', '.', '_', 'a', 'Z', 'rc', '1', '0', '10', 'git'], 4),
  some(['1', '0', '~', '^', '.', 'a', 'el9', 'fc'], 3).map((text) => `-1${text}`),
)
const python = joined(
  optional(fc.constantFrom('v', '0!', '1!')),
  dotted,
  optional(
    joined(
      fc.constantFrom('', '.', '-', '_'),
      fc.constantFrom('a', 'b', 'c', 'rc', 'alpha', 'beta', 'pre', 'preview', 'RC'),
      fc.constantFrom('', '0', '1', '10', '.2'),
    ),
  ),
  optional(fc.constantFrom('.post1', '-1', '.post', 'post2', '_rev3', '-r4')),
  optional(fc.constantFrom('.dev0', '.dev1', 'dev10', '-dev2', '.dev')),
  optional(some(['1', '0', 'a', 'ubuntu', '10'], 3, 1).map((text) => `+${text}`)),
)
const qualifiers = fc.constantFrom('alpha', 'a', 'beta', 'b', 'milestone', 'm', 'rc', 'cr', 'SNAPSHOT', 'sp', 'x', 'jre')
/** As most projects write them. Elsewhere, for example for a word after a dot, Maven itself differs from its specification, which Taproot follows. */
const maven = joined(
  dotted,
  fc.oneof(
    optional(fc.constantFrom('-ga', '-final', 'final', '-RELEASE', '-1', '-10')),
    joined(
      fc.constantFrom('-', ''),
      qualifiers,
      optional(fc.constantFrom('1', '2', '10', '-1', '-2')),
      optional(fc.constantFrom('-SNAPSHOT', '-jre', '-android')),
    ),
  ),
)
const identifiers = fc
  .array(fc.constantFrom('alpha', 'beta', 'rc', '0', '1', '11', 'x-y', 'a1', 'A'), { minLength: 1, maxLength: 3 })
  .map((parts) => parts.join('.'))
const semantic = joined(core, optional(identifiers.map((text) => `-${text}`)), optional(identifiers.map((text) => `+${text}`)))
const go = joined(
  fc.constant('v'),
  core,
  optional(
    fc
      .oneof(identifiers, fc.constantFrom('0.20260101000000-abcdefabcdef', '0.20260102000000-000000000000', 'rc.1.0.20260101000000-abcdefabcdef'))
      .map((text) => `-${text}`),
  ),
  optional(fc.constant('+incompatible')),
)

const tools: readonly (readonly [
  what: string,
  order: VersionOrder,
  versions: fc.Arbitrary<string>,
  compare: (all: readonly Pair[]) => number[] | Promise<number[]>,
])[] = [
  ['dpkg', debianOrder, debian, byDpkg],
  ['rpm', rpmOrder, rpm, byRpm],
  ['packaging of Python', pep440Order, python, byPython],
  ['Maven', mavenOrder, maven, byMaven],
  ['semver of npm', semanticOrder, semantic, byNpm],
  ['semver of Go', goOrder, go, byGo],
]

describe('versions are compared as by', () => {
  test.each(tools)('%s', { timeout: 600_000 }, async (_, order, versions, compare) => {
    const all = fc.sample(fc.tuple(versions, versions), pairs)
    const signs = await compare(all)
    expect(signs).toHaveLength(pairs)
    const wrong = all.flatMap(([one, other], at) => {
      const sign = Math.sign(order.compare(one, other))
      return sign === Math.sign(signs[at] ?? NaN) ? [] : [`${one} and ${other}: ${sign} instead of ${signs[at]}`]
    })
    expect(wrong).toEqual([])
  })
})
