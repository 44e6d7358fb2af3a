import { ContentError } from '../package.ts'
import { isObject, objectsAt, objectsIn, shown, textIn, valuesIn, type SbomObject } from '../sbom/json.ts'
import type { ReportForm, ReportList } from './report-list.ts'

/** The longest message that is read, in characters. */
const maxMessage = 16 * 1024
/** Ids of vulnerabilities. Some scanners add the package to the id of the rule. */
const knownIds = /^(?:CVE-\d{4}-\d{4,19}|GHSA(?:-[0-9a-z]{4}){3})(?=-|$)/
/** The levels of SARIF, as severities. */
const levels: ReadonlyMap<unknown, string> = new Map([
  ['error', 'high'],
  ['warning', 'medium'],
  ['note', 'low'],
])

function memberOf(value: unknown, key: string): unknown {
  return isObject(value) ? value[key] : undefined
}

/** Returns the lines of a message that have a label, as Trivy writes them: `Installed Version: 1.2`. */
function labelsOf({ message }: SbomObject): ReadonlyMap<string, string> {
  const text = memberOf(message, 'text')
  const lines = typeof text === 'string' && text.length <= maxMessage ? text.split('\n') : []
  return new Map(
    lines.flatMap((line) => {
      const at = line.indexOf(': ')
      return at < 0 ? [] : [[line.slice(0, at), line.slice(at + 2).trim()] as const]
    }),
  )
}

/** True for a result that was found, and that no one suppressed. */
function counts({ kind = 'fail', suppressions }: SbomObject): boolean {
  const isSuppressed = objectsIn(suppressions).some(({ status = 'accepted' }) => status === 'accepted')
  return (kind === 'fail' || kind === 'open' || kind === 'review') && !isSuppressed
}

function pathsOf({ locations }: SbomObject): unknown[] {
  return objectsIn(locations).map(({ physicalLocation }) => memberOf(memberOf(physicalLocation, 'artifactLocation'), 'uri'))
}

/** The rules of a run, by number and by id. */
class Rules {
  readonly #rules: readonly SbomObject[]
  readonly #byId: ReadonlyMap<unknown, SbomObject>

  constructor(driver: unknown) {
    this.#rules = objectsIn(memberOf(driver, 'rules'))
    this.#byId = new Map(this.#rules.map((rule) => [rule['id'], rule]))
  }

  /** Returns the rule of a result; an empty one if there is none. */
  of({ ruleId, ruleIndex, rule }: SbomObject): SbomObject {
    const index = ruleIndex ?? memberOf(rule, 'index')
    const numbered = typeof index === 'number' && index >= 0 ? this.#rules[index] : undefined
    return numbered ?? this.#byId.get(ruleId ?? memberOf(rule, 'id')) ?? {}
  }
}

function addResult(result: SbomObject, rule: SbomObject, list: ReportList): void {
  const labels = labelsOf(result)
  const properties = [result['properties'], rule['properties']]
  // Only the first of a list: many results can have the same long list of a rule.
  const at = (key: string): unknown[] => properties.map((one) => valuesIn(memberOf(one, key))[0])
  const id = textIn(result['ruleId'] ?? memberOf(result['rule'], 'id') ?? rule['id'])
  const level = result['level'] ?? memberOf(rule['defaultConfiguration'], 'level') ?? 'warning'
  list.add({
    id: knownIds.exec(id)?.[0] ?? id,
    severities: [labels.get('Severity'), ...at('security-severity'), levels.get(level)],
    purl: [...at('purl'), ...at('purls')].find((purl) => purl !== undefined),
    name: labels.get('Package'),
    version: labels.get('Installed Version'),
    fixedVersion: labels.get('Fixed Version'),
    locations: pathsOf(result),
  })
}

/** SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/). The first run names the scanner. */
export const sarif: ReportForm = {
  format: 'SARIF',
  recognises: ({ runs, version }) => Array.isArray(runs) && typeof version === 'string',
  read(document, list) {
    const version = document['version']
    if (version !== '2.1.0') throw new ContentError('UNSUPPORTED_FORM', `${shown(version, 'this version')} of SARIF is not read: 2.1.0 is`)
    const runs = objectsAt(document, 'runs')
    for (const run of runs) {
      const rules = new Rules(memberOf(run['tool'], 'driver'))
      for (const result of objectsIn(run['results'])) if (counts(result)) addResult(result, rules.of(result), list)
    }
    const driver = memberOf(runs[0]?.['tool'], 'driver')
    const [invocation] = objectsIn(runs[0]?.['invocations'])
    return {
      scanner: memberOf(driver, 'name'),
      scannerVersion: memberOf(driver, 'version') ?? memberOf(driver, 'semanticVersion'),
      created: invocation?.['endTimeUtc'],
    }
  },
}
