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

/** Returns the path in a URI of SARIF, without percent encoding and `file://`. Returns other values, and texts that are not encoded, as they are. */
function pathOf(uri: unknown): unknown {
  if (typeof uri !== 'string') return uri
  const path = uri.replace(/^file:\/\/(?=\/)/i, '')
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}

function pathsOf({ locations }: SbomObject): unknown[] {
  return objectsIn(locations).map(({ physicalLocation }) => pathOf(memberOf(memberOf(physicalLocation, 'artifactLocation'), 'uri')))
}

/** Returns the id of the rule of a result; undefined if it names none. */
function ruleIdOf({ ruleId, rule }: SbomObject): unknown {
  return ruleId ?? memberOf(rule, 'id')
}

/** True if the id is that of the rule, or of a part of it: `rule/part`. */
function fits(rule: SbomObject, id: unknown): boolean {
  return id === undefined || rule['id'] === id || (typeof id === 'string' && id.startsWith(`${textIn(rule['id'])}/`))
}

/** The rules of a component of a tool, by number and by id. */
class Rules {
  readonly #rules: readonly SbomObject[]
  readonly #byId: ReadonlyMap<unknown, SbomObject>

  constructor(component: unknown) {
    // Numbers count what is no object too.
    this.#rules = valuesIn(memberOf(component, 'rules')).map((rule) => (isObject(rule) ? rule : {}))
    this.#byId = new Map(this.#rules.map((rule) => [rule['id'], rule]))
  }

  /** Returns the rule of a result. A number counts only if its rule has the id that the result names. Returns an empty rule if there is none. */
  of(result: SbomObject): SbomObject {
    const index = result['ruleIndex'] ?? memberOf(result['rule'], 'index')
    const id = ruleIdOf(result)
    const numbered = typeof index === 'number' && index >= 0 ? this.#rules[index] : undefined
    return (numbered !== undefined && fits(numbered, id) ? numbered : this.#byId.get(id)) ?? {}
  }
}

/** The rules of a run: those of its driver, and of the extensions of its tool. */
class ToolRules {
  readonly #driver: Rules
  readonly #extensions: readonly Rules[]

  constructor(tool: unknown) {
    this.#driver = new Rules(memberOf(tool, 'driver'))
    this.#extensions = valuesIn(memberOf(tool, 'extensions')).map((extension) => new Rules(extension))
  }

  /** Returns the rule of a result; an empty one if there is none. */
  of(result: SbomObject): SbomObject {
    const component = memberOf(memberOf(result['rule'], 'toolComponent'), 'index')
    const rules = typeof component === 'number' && component >= 0 ? this.#extensions[component] : this.#driver
    return rules?.of(result) ?? {}
  }
}

function addResult(result: SbomObject, rule: SbomObject, list: ReportList): void {
  const labels = labelsOf(result)
  const properties = [result['properties'], rule['properties']]
  // Only the first of a list: many results can have the same long list of a rule.
  const at = (key: string): unknown[] => properties.map((one) => valuesIn(memberOf(one, key))[0])
  const id = textIn(ruleIdOf(result) ?? rule['id'])
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
      const rules = new ToolRules(run['tool'])
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
