// The version of a release and its section of the changelog. Plain JavaScript for Node 20, without packages.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Returns the version in package.json. */
export function versionOf(root) {
  return JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version
}

/** Returns one line for each place that disagrees with package.json. A dry run may come before the date of the release is set. */
export function versionFaults(root, { tag, isDryRun }) {
  const version = versionOf(root)
  const read = (path) => readFileSync(join(root, path), 'utf8')
  const chart = read('charts/taproot/Chart.yaml')
  const lock = JSON.parse(read('package-lock.json'))
  const [heading, date] = /^## (\S+) \((.*)\)$/m.exec(read('CHANGELOG.md'))?.slice(1) ?? []
  const places = {
    'package-lock.json': lock.version,
    'the root package in package-lock.json': lock.packages[''].version,
    'version in charts/taproot/Chart.yaml': /^version: (\S+)$/m.exec(chart)?.[1],
    'appVersion in charts/taproot/Chart.yaml': /^appVersion: (\S+)$/m.exec(chart)?.[1],
    'the first heading of CHANGELOG.md': heading,
    ...(tag === undefined ? {} : { 'the tag, without its v,': tag.replace(/^v/, '') }),
  }
  const faults = Object.entries(places).flatMap(([place, found]) =>
    found === version ? [] : [`${place} is ${found ?? 'missing'}, and package.json has ${version}`],
  )
  if (tag === undefined && !isDryRun) faults.push('the tag is missing: set --tag')
  if (!isDryRun && !/^\d{4}-\d\d-\d\d$/.test(date ?? '')) faults.push(`the first heading of CHANGELOG.md has no date: (${date})`)
  return faults
}

/** Returns the section of the changelog about a version, without its heading. */
export function releaseNotes(root, version) {
  const sections = readFileSync(join(root, 'CHANGELOG.md'), 'utf8').split(/^## /m)
  const section = sections.find((text) => text.startsWith(`${version} `))
  if (section === undefined) throw new Error(`CHANGELOG.md has no section about ${version}`)
  return `${section.slice(section.indexOf('\n')).trim()}\n`
}
