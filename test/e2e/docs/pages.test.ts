import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { expiredSorts } from '../../../src/domains/expire.ts'
import packageJson from '../../../package.json' with { type: 'json' }

const root = join(import.meta.dirname, '..', '..', '..')
const read = (path: string): string => readFileSync(join(root, path), 'utf8')

const pages = [
  ...readdirSync(root).filter((name) => name.endsWith('.md')),
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.md'))
    .map((path) => join('docs', path)),
]

/** Returns the links of a page to files of the repository, relative to its root, except those in code. */
function links(path: string): string[] {
  const prose = read(path).replaceAll(/`[^`\n]+`/g, '')
  const targets = [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] ?? '')
  return targets.filter((target) => !/^(?:[a-z]+:|#)/.test(target)).map((target) => normalize(join(dirname(path), target.replace(/#.*$/, ''))))
}

/** Every match's first group in a source file. */
function namesIn(path: string, pattern: RegExp): string[] {
  return [...read(path).matchAll(pattern)].map((match) => match[1] ?? '')
}

describe('the documentation pages', () => {
  it.each(pages)('%s links to existing files', (path) => {
    expect(links(path).filter((target) => !existsSync(join(root, target)))).toEqual([])
  })

  it('docs/README.md lists every page and every decision record', () => {
    const indexed = links('docs/README.md')
    expect(pages.filter((path) => path.startsWith('docs') && path !== join('docs', 'README.md') && !indexed.includes(path))).toEqual([])
  })

  it('README.md has at most 500 words of prose and 150 lines, without code and tables', () => {
    const lines = read('README.md')
      .replaceAll(/^```[\s\S]*?^```$/gm, '')
      .split('\n')
      .filter((line) => !line.startsWith('|'))
    expect(lines.length).toBeLessThanOrEqual(150)
    expect(lines.join(' ').split(/\s+/).length).toBeLessThanOrEqual(500)
  })

  it('README.md builds and pushes the same image that the chart pulls', () => {
    const { appVersion } = parse(read('charts/taproot/Chart.yaml')) as { readonly appVersion: string }
    const [repository = ''] = namesIn('README.md', /^\$ helm install .*--set image\.repository=(\S+)/gm)
    expect(repository).not.toBe('')
    expect(namesIn('README.md', /\b(buildah (?:build -t|push) \S+)/g)).toEqual([
      `buildah build -t ${repository}:${appVersion}`,
      `buildah push ${repository}:${appVersion}`,
    ])
    expect(appVersion).toBe(packageJson.version)
  })

  it('every page shows the same version', () => {
    const { version } = packageJson
    const lock = JSON.parse(read('package-lock.json')) as { readonly version: string; readonly packages: { readonly '': { readonly version: string } } }
    expect([lock.version, lock.packages[''].version]).toEqual([version, version])
    expect((parse(read('charts/taproot/Chart.yaml')) as { readonly version: string }).version).toBe(version)
    expect(namesIn('CHANGELOG.md', /^## (\d\S+)/gm)[0]).toBe(version)
    expect(namesIn('docs/install.md', /VERSION=(\S+)/g)).toEqual([version])
    expect(new Set(namesIn('docs/contributing/releasing.md', /\bv?(\d+\.\d+\.\d+)\b/g))).toEqual(new Set([version]))
  })

  it('operations.md lists every metric of this program', () => {
    const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts') && !path.startsWith('gen'))
    const metrics = sources.flatMap((path) => namesIn(join('src', path), /name: '(taproot_[a-z_]+)'/g))
    expect(metrics).toContain('taproot_event_deliveries_total')
    expect(metrics.filter((name) => !read('docs/operations.md').includes(`\`${name}\``))).toEqual([])
  })

  it('operations.md lists every kind of entry that the leader expires', () => {
    expect(expiredSorts.filter((name) => !read('docs/operations.md').includes(`\`${name}\``))).toEqual([])
  })

  it('audit.md lists every field of an audit event', () => {
    const fields = namesIn('src/base/audit-line.ts', /^ {2}readonly ([a-zA-Z]+)\??:/gm)
    expect(fields.length).toBeGreaterThan(10)
    expect(fields.filter((name) => !read('docs/audit.md').includes(`\`${name}\``))).toEqual([])
  })
})
