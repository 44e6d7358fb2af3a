import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { afterAll, describe, expect, test } from 'vitest'
import { packagesOfLayers } from '../../src/contents/index.ts'
import { requirePart, skipFor } from '../support/parts/require-part.ts'
import { layersOf, piecesOf, tarOf, type TestEntry } from './tar-of.ts'
import { berkeleyOf, goBuildInfo, ndbOf, rpmHeader, zipOf } from './samples.ts'

const folder = mkdtempSync(join(tmpdir(), 'taproot-layers-test-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const signal = new AbortController().signal
const wolfi = 'ID=wolfi\nVERSION_ID="20230201"\n'

async function purlsOf(files: Readonly<Record<string, string | Uint8Array>>): Promise<string[]> {
  const { packages, skipped } = await packagesOfLayers(layersOf(files), signal)
  expect(skipped).toEqual([])
  return packages.map(({ purl }) => purl)
}

const apkDatabase = 'C:Q1x=\nP:openssl\nV:3.3.1-r0\nA:x86_64\nL:Apache-2.0\no:openssl\nF:usr/bin\nR:openssl\n\nP:libssl3\nV:3.3.1-r0\nA:x86_64\no:openssl\n\n'
const dpkgStatus = [
  'Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nSource: zlib\nVersion: 1:1.2.13.dfsg-1\nDescription: compression\n more words\n',
  'Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n',
  'Package: perl-base\nStatus: install ok installed\nArchitecture: amd64\nSource: perl (5.36.0-7)\nVersion: 5.36.0-7+b1\n',
].join('\n')

describe('each reader finds the packages', () => {
  const python = 'Metadata-Version: 2.1\nName: Zope.Interface_x\nVersion: 1.0\nLicense: MIT\n\nName: other\n'
  const rows: readonly { readonly title: string; readonly files: Readonly<Record<string, string | Uint8Array>>; readonly purls: readonly string[] }[] = [
    {
      title: 'apk',
      files: { 'etc/os-release': wolfi, 'lib/apk/db/installed': apkDatabase },
      purls: [
        'pkg:apk/wolfi/libssl3@3.3.1-r0?arch=x86_64&distro=wolfi-20230201&upstream=openssl',
        'pkg:apk/wolfi/openssl@3.3.1-r0?arch=x86_64&distro=wolfi-20230201',
      ],
    },
    {
      title: 'dpkg',
      files: { 'usr/lib/os-release': 'ID=debian\nVERSION_ID="12"\n', 'var/lib/dpkg/status': dpkgStatus },
      purls: [
        'pkg:deb/debian/perl-base@5.36.0-7+b1?arch=amd64&distro=debian-12&upstream=perl%405.36.0-7',
        'pkg:deb/debian/zlib1g@1:1.2.13.dfsg-1?arch=amd64&distro=debian-12&upstream=zlib',
      ],
    },
    {
      title: 'dpkg without dpkg',
      files: { './usr/lib/os-release': 'ID=debian\n', './var/lib/dpkg/status.d/base': 'Package: base-files\nVersion: 12\nArchitecture: all\n' },
      purls: ['pkg:deb/debian/base-files@12?arch=all&distro=debian'],
    },
    {
      title: 'npm',
      files: {
        'app/node_modules/@scope/a/package.json': '{"name":"@scope/a","version":"1.0.0","license":"MIT"}',
        'app/node_modules/b/package.json': '{"name":"b","version":"2.0.0"}',
        'app/node_modules/b/esm/package.json': '{"type":"module"}',
      },
      purls: ['pkg:npm/%40scope/a@1.0.0', 'pkg:npm/b@2.0.0'],
    },
    {
      title: 'python',
      files: { 'usr/lib/python3/site-packages/z-1.0.dist-info/METADATA': python, 'usr/lib/python3/old.egg-info': 'Name: old\nVersion: 0.1\n' },
      purls: ['pkg:pypi/old@0.1', 'pkg:pypi/zope-interface-x@1.0'],
    },
    {
      title: 'go',
      files: {
        'usr/bin/tool': goBuildInfo(
          'go1.22.1',
          'path\texample.org/tool\nmod\texample.org/tool\t(devel)\t\ndep\tgithub.com/a/b/v2\tv2.1.0\th1:x=\ndep\texample.org/c\tv1.0.0\n=>\texample.org/d\tv1.0.1\th1:y=\nbuild\tvcs.revision=0123456789abcdef\nbuild\tvcs.time=2024-01-02T03:04:05Z\n',
        ),
      },
      purls: [
        'pkg:golang/example.org/d@v1.0.1',
        'pkg:golang/example.org/tool@v0.0.0-20240102030405-0123456789ab',
        'pkg:golang/github.com/a/b/v2@v2.1.0',
        'pkg:golang/stdlib@1.22.1',
      ],
    },
    {
      title: 'rpm, ndb',
      files: {
        'etc/os-release': 'ID="rhel"\nVERSION_ID="9.4"\n',
        'usr/lib/sysimage/rpm/Packages.db': ndbOf([
          rpmHeader({ name: 'bash', version: '5.1', release: '2.el9', arch: 'x86_64', source: 'bash-5.1-2.el9.src.rpm', epoch: 1 }),
        ]),
      },
      purls: ['pkg:rpm/redhat/bash@5.1-2.el9?arch=x86_64&distro=rhel-9.4&epoch=1&upstream=bash-5.1-2.el9.src.rpm'],
    },
    ...[true, false].map((isLittle) => ({
      title: `rpm, Berkeley DB, ${isLittle ? 'little' : 'big'} endian`,
      files: {
        'etc/os-release': 'ID=centos\nVERSION_ID=7\n',
        'var/lib/rpm/Packages': berkeleyOf(rpmHeader({ name: 'n'.repeat(500), version: '1', release: '2', arch: '(none)', source: '(none)' }), isLittle),
      },
      purls: [`pkg:rpm/centos/${'n'.repeat(500)}@1-2?distro=centos-7`],
    })),
    {
      title: 'java',
      files: {
        'app/app.jar': zipOf({
          'META-INF/MANIFEST.MF': 'Manifest-Version: 1.0\r\nImplementation-Title: app\r\n\r\n',
          'BOOT-INF/lib/lib-1.2.jar': zipOf({ 'META-INF/maven/org.example/lib/pom.properties': 'groupId=org.example\nartifactId=lib\nversion=1.2\n' }),
          'BOOT-INF/lib/plain-core-2.0.jar': zipOf({
            'META-INF/MANIFEST.MF': 'Manifest-Version: 1.0\r\nBundle-SymbolicName: com.example.plain.\r\n core;singleton:=true\r\n\r\n',
          }),
        }),
      },
      purls: ['pkg:maven/app/app', 'pkg:maven/com.example/plain-core@2.0', 'pkg:maven/org.example/lib@1.2'],
    },
  ]
  test.each(rows)('$title', async ({ files, purls }) => {
    expect(await purlsOf(files)).toEqual(purls)
  })

  test('rpm, SQLite with a write-ahead log', async () => {
    const path = join(folder, 'rpmdb.sqlite')
    const database = new DatabaseSync(path)
    database.exec('PRAGMA journal_mode = WAL; CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)')
    database.prepare('INSERT INTO Packages (blob) VALUES (?)').run(rpmHeader({ name: 'bash', version: '5', release: '1', arch: 'noarch', source: '' }))
    database.close()
    const files = { 'etc/os-release': 'ID=fedora\nVERSION_ID=40\n', 'var/lib/rpm/rpmdb.sqlite': readFileSync(path) }
    expect(await purlsOf(files)).toEqual(['pkg:rpm/fedora/bash@5-1?arch=noarch&distro=fedora-40'])
  })
})

describe('layers', () => {
  const b = { path: 'b/package.json', data: '{"name":"b","version":"1"}' }
  test.each([
    ['plain', (bytes: Buffer) => bytes],
    ['gzip', gzipSync],
    ['gzip in two parts', (bytes: Buffer) => Buffer.concat([gzipSync(bytes.subarray(0, 600)), gzipSync(bytes.subarray(600))])],
    ['zstd', zstdCompressSync],
    [
      'zstd in frames, one to skip',
      (bytes: Buffer) =>
        Buffer.concat([zstdCompressSync(bytes.subarray(0, 600)), Buffer.from('502a4d180400000000000000', 'hex'), zstdCompressSync(bytes.subarray(600))]),
    ],
  ])('%s', async (_title, compress) => {
    for (const size of [1, 7, 100_000]) {
      const { packages } = await packagesOfLayers([piecesOf(compress(tarOf([b])), size)], signal)
      expect(packages.map(({ name }) => name)).toEqual(['b'])
    }
  })

  test('a package at several places has their paths, and a hard link is a place', async () => {
    const layer = tarOf([
      b,
      { path: 'c/package.json', type: '1', link: b.path },
      { path: 'd/package.json', type: '1', link: '../../etc/passwd' },
      { path: 'e/package.json', type: '2', link: '/b/package.json' },
    ])
    const { packages } = await packagesOfLayers([piecesOf(layer)], signal)
    expect(packages).toMatchObject([{ purl: 'pkg:npm/b@1', locations: ['/b/package.json', '/c/package.json'] }])
  })

  test('each layer is read to its end', async () => {
    let read = 0
    const bytes = Buffer.concat([tarOf([b]), Buffer.alloc(3_000_000)])
    const counted = async function* (): AsyncGenerator<Uint8Array> {
      for await (const piece of piecesOf(bytes)) {
        read += piece.length
        yield piece
      }
    }
    await packagesOfLayers([counted()], signal)
    expect(read).toBe(bytes.length)
  })
})

describe('links', () => {
  const installed = 'lib/apk/db/installed'
  const apkFile = (path: string, mode = 0o644): TestEntry => ({ path, data: 'P:musl\nV:1-r0\n\n', mode })
  const hard = (path: string, link: string, mode = 0o644): TestEntry => ({ path, type: '1', link, mode })
  const soft = (path: string, link: string): TestEntry => ({ path, type: '2', link, mode: 0o777 })
  const skippedOf = async (...layers: readonly (readonly TestEntry[])[]): Promise<string[]> =>
    (
      await packagesOfLayers(
        layers.map((entries) => piecesOf(tarOf(entries))),
        signal,
      )
    ).skipped.map(({ path }) => path)

  test.each<readonly [string, readonly (readonly TestEntry[])[], string]>([
    ['a hard link to a package database elsewhere', [[apkFile('data/inst'), hard(installed, 'data/inst')]], installed],
    ['a hard link to a database that another reader read', [[apkFile('data/inst', 0o755), hard(installed, 'data/inst', 0o755)]], installed],
    ['a hard link to such a link', [[apkFile('data/inst'), hard('data/b', 'data/inst'), hard(installed, 'data/b')]], installed],
    ['a hard link to a package.json', [[{ path: 'store/ab', data: '{}' }, hard('x/package.json', 'store/ab')]], 'x/package.json'],
    ['a hard link to an archive', [[{ path: 'data/blob' }, hard('app/log4j-core-2.14.1.jar', 'data/blob')]], 'app/log4j-core-2.14.1.jar'],
    ['a hard link that makes a file executable', [[{ path: 'data/x' }, hard('bin/x', 'data/x', 0o755)]], 'bin/x'],
    ['a symbolic link', [[apkFile('data/inst'), soft(installed, '/data/inst')]], installed],
    ['a hard link to a symbolic link', [[apkFile('data/inst'), soft('a', '/data/inst'), hard(installed, 'a')]], installed],
    ['a symbolic link in place of a folder', [[apkFile(installed)], [apkFile('opt/apk/db/installed'), soft('lib/apk', '../opt/apk')]], installed],
    ['symbolic links one after the other', [[soft('lib', 'a'), soft('a', './b/../c')], [apkFile('c/apk/db/installed')]], installed],
    ['a folder of dpkg', [[soft('var', 'data'), { path: 'data/lib/dpkg/status.d/base', data: 'Package: a\nVersion: 1\n' }]], 'var/lib/dpkg/status.d'],
  ])('%s: what is not read is named', async (_title, layers, path) => {
    expect(await skippedOf(...layers)).toEqual([`/${path}`])
    expect(await skippedOf(...layers, [{ path: '.wh..wh..opq' }])).toEqual([])
  })

  test.each<readonly [string, readonly (readonly TestEntry[])[]]>([
    ['folders that were moved', [[soft('lib', 'usr/lib'), soft('var/lib/rpm', '../../usr/lib/sysimage/rpm'), apkFile('usr/lib/apk/db/installed')]]],
    ['folders without a database', [[soft('lib', '/nix/store/x/lib'), { path: 'nix/store/x/lib/y' }, soft('var', '/gone')]]],
    ['links that go round', [[soft('lib', '/a'), soft('a', 'lib')]]],
    ['programs', [[{ path: 'bin/git', mode: 0o755 }, hard('lib/git-add', 'bin/git', 0o755)], [hard('bin/git2', 'lib/git-add', 0o755)]]],
    ['a program that is another link', [[soft('bin/a', 'b'), hard('bin/c', 'bin/a', 0o777)]]],
    ['files that another reader read', [[{ path: 'a/package.json', data: '{}', mode: 0o755 }, hard('store/a-exec', 'a/package.json', 0o755)]]],
    [
      'archives and programs',
      [[soft('usr/share/java/a.jar', 'a-1.jar'), soft('x/node_modules/.bin/a', '../a/a.js'), soft('etc/os-release', '../usr/lib/os-release')]],
    ],
    ['files without packages', [[{ path: 'a/package.json', data: '{}' }, hard('b/package.json', 'a/package.json')]]],
  ])('harmless links are not named: %s', async (_title, layers) => {
    expect(await skippedOf(...layers)).toEqual([])
  })
})

describe('databases of real tools', () => {
  test('dpkg lists the same packages', async () => {
    if (!existsSync('/var/lib/dpkg/status')) skipFor('dpkg is not installed')
    const listed = execFileSync('dpkg-query', ['-W', '-f', '${db:Status-Status} ${Package} ${Version} ${Architecture}\n'], { encoding: 'utf8' })
    const expected = listed
      .split('\n')
      .filter((line) => line.startsWith('installed '))
      .map((line) => line.slice('installed '.length))
    const { packages } = await packagesOfLayers(layersOf({ 'var/lib/dpkg/status': readFileSync('/var/lib/dpkg/status') }), signal)
    const found = packages.map(({ name, version, purl }) => `${name} ${version} ${new URL(purl).searchParams.get('arch')}`)
    expect(found.sort()).toEqual(expected.sort())
  })

  test('go version -m lists the same modules', async () => {
    const program = requirePart('crane')
    if (spawnSync('go', ['version']).error !== undefined) skipFor('go is not installed')
    const listed = execFileSync('go', ['version', '-m', program], { encoding: 'utf8' })
    const modules = [...listed.matchAll(/^\t(?:mod|dep)\t(\S+)\t(\S+)/gm)].map(([, name, version]) => `${name} ${version}`)
    const { packages } = await packagesOfLayers(layersOf({ 'usr/bin/crane': readFileSync(program) }), signal)
    const found = packages.filter(({ name }) => name !== 'stdlib').map(({ name, version }) => `${name} ${version}`)
    expect(listed).not.toContain('\t=>\t')
    expect(found.sort()).toEqual(modules.sort())
    expect(modules.length).toBeGreaterThan(10)
  })
})
