import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { requirePart } from '../../support/parts/require-part.ts'
import { run } from '../cluster/harness/command.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string } // a cast: our own file

function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'taproot-release-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

interface Outcome {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

function release(tree: string, ...args: string[]): Outcome {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(tree, 'tools', 'release.js'), ...args], { encoding: 'utf8' })
  return { status, stdout, stderr }
}

interface ChartMetadata {
  readonly home: string
  readonly icon: string
  readonly version: string
  readonly annotations: Readonly<Record<string, string>>
}

// docs/contributing/releasing.md
test('a dry run of a release writes chart, notes and checksums, and prints what it would publish', async () => {
  requirePart('helm')
  const output = freshFolder()
  const source = 'https://git.example.com/platform/taproot'
  const flags = ['--tag', `v${version}`, '--registry', 'Registry.Example.com/Platform', '--source', source, '--output', output]
  const { status, stdout, stderr } = release(root, '--dry-run', '--without-image', ...flags)
  expect([status, stderr]).toEqual([0, ''])
  expect(readdirSync(output).toSorted()).toEqual(['SHA256SUMS', 'release-notes.md', `taproot-${version}.tgz`])
  expect(stdout).toContain(`would run: crane push ${join(output, 'image')} registry.example.com/platform/taproot:${version}\n`)
  expect(stdout).toContain(`would run: helm push ${join(output, `taproot-${version}.tgz`)} oci://registry.example.com/platform/charts\n`)
  expect(stdout.match(/^would run: cosign (sign|attest|sign-blob) --yes /gm)).toHaveLength(4)
  expect(stdout.replaceAll(/^would run: .*\n/gm, '')).toBe('')

  const archive = readFileSync(join(output, `taproot-${version}.tgz`))
  expect(readFileSync(join(output, 'SHA256SUMS'), 'utf8')).toBe(`${createHash('sha256').update(archive).digest('hex')}  taproot-${version}.tgz\n`)
  expect(readFileSync(join(output, 'release-notes.md'), 'utf8')).toContain('### Added')
  expect(readFileSync(join(output, 'release-notes.md'), 'utf8')).not.toMatch(/^## /m)
  const packed = await run('tar', ['--extract', '--gzip', '--to-stdout', `--file=${join(output, `taproot-${version}.tgz`)}`, 'taproot/Chart.yaml'])
  const metadata = parse(packed) as ChartMetadata // a cast: our own file
  expect(metadata).toMatchObject({ home: source, version, icon: `${source}/raw/main/charts/taproot/icon.svg` })
  expect(parse(metadata.annotations['artifacthub.io/images'] ?? '')).toContainEqual({
    name: 'taproot',
    image: `registry.example.com/platform/taproot:${version}`,
  })
})

test('a release is refused where tag, packages, chart and changelog disagree, with all differences', () => {
  const tree = freshFolder()
  for (const path of ['tools', 'package.json', 'package-lock.json', 'CHANGELOG.md', 'charts']) cpSync(join(root, path), join(tree, path), { recursive: true })
  const chart = join(tree, 'charts', 'taproot', 'Chart.yaml')
  writeFileSync(chart, readFileSync(chart, 'utf8').replace(/^appVersion: .*$/m, 'appVersion: 9.9.9'))
  const changelog = join(tree, 'CHANGELOG.md')
  writeFileSync(changelog, readFileSync(changelog, 'utf8').replace(/^## .*$/m, '## 8.8.8 (unreleased)'))
  const { status, stderr } = release(tree, '--tag', 'v7.7.7', '--registry', 'registry.example.com')
  expect(status).toBe(1)
  expect(stderr.trim().split('\n')).toEqual([
    `appVersion in charts/taproot/Chart.yaml is 9.9.9, and package.json has ${version}`,
    `the first heading of CHANGELOG.md is 8.8.8, and package.json has ${version}`,
    `the tag, without its v, is 7.7.7, and package.json has ${version}`,
    'the first heading of CHANGELOG.md has no date: (unreleased)',
  ])
})

// charts/taproot/Chart.yaml
test('the chart names the images that its values name, for Artifact Hub', () => {
  const { annotations } = parse(readFileSync(join(root, 'charts/taproot/Chart.yaml'), 'utf8')) as ChartMetadata // a cast: our own file
  const values = parse(readFileSync(join(root, 'charts/taproot/values.yaml'), 'utf8')) as Record<string, { image: { repository: string; tag: string } }> // a cast: our own file
  const named = (key: string): string => `${values[key]?.image.repository}:${values[key]?.image.tag}`
  expect(parse(annotations['artifacthub.io/images'] ?? '')).toEqual([
    { name: 'etcd', image: named('etcd') },
    { name: 'registry', image: named('upstream') },
  ])
  expect(annotations).toMatchObject({ 'artifacthub.io/category': 'security', 'artifacthub.io/license': 'Apache-2.0' })
  expect(parse(annotations['artifacthub.io/links'] ?? '')).toContainEqual(expect.objectContaining({ name: 'Documentation' }))
  expect(parse(annotations['artifacthub.io/changes'] ?? '')).toContainEqual(expect.objectContaining({ kind: 'added' }))
})
