import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseAllDocuments } from 'yaml'
import { runKubeClient, type KubeClientResult } from '../../support/parts/kubernetes/kube-client.ts'

/** The chart's folder. */
export const chartDirectory = resolve(import.meta.dirname, '../../../charts/taproot')

/** The release and namespace of rendered charts. */
export const release = { name: 'taproot', namespace: 'platform' } as const

/** Values, as in a values file. */
export type Values = Readonly<Record<string, unknown>>

/** An object of a rendered chart. Its fields depend on its kind. */
export interface Rendered {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
  }
  // Tests look into all kinds of objects, whose shapes the API server checks.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly [field: string]: any
}

/** Returns the values with the one that has no default. */
export function withImage(values: Values): Values {
  return { ...values, image: { repository: 'taproot', ...(values['image'] as Values | undefined) } } // a cast: the chart checks it
}

/** Runs a real helm on the chart with these values, without a cluster. Does not throw if helm fails. */
export async function helm(command: readonly string[], values: Values): Promise<KubeClientResult> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-values-'))
  try {
    const file = join(directory, 'values.yaml')
    await writeFile(file, JSON.stringify(withImage(values)))
    return await runKubeClient('helm', [...command, '--values', file], { kubeconfigFile: join(directory, 'none') })
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/** Returns the output of `helm template`. Throws its error message if it fails. */
export async function renderText(values: Values, place: { readonly name: string; readonly namespace: string } = release): Promise<string> {
  const { code, stdout, stderr } = await helm(['template', place.name, chartDirectory, '--namespace', place.namespace], values)
  if (code !== 0) throw new Error(stderr)
  return stdout
}

/** The objects of a rendering. */
export function objectsOf(text: string): readonly Rendered[] {
  return parseAllDocuments(text).flatMap((document) => {
    if (document.errors.length > 0) throw new Error(document.errors.join('\n'))
    const object = document.toJS() as Rendered | null // a cast: whether it is one, the API server says
    return object === null ? [] : [object]
  })
}

/** Renders the objects. */
export async function render(values: Values = {}): Promise<readonly Rendered[]> {
  return objectsOf(await renderText(values))
}

/** Returns the only object of that kind and name. Throws unless there is exactly one. */
export function one(objects: readonly Rendered[], kind: string, name: string): Rendered {
  const [found, ...more] = objects.filter((object) => object.kind === kind && object.metadata.name === name)
  if (found === undefined || more.length > 0) throw new Error(`${found === undefined ? 'no' : 'more than one'} ${kind} ${name}`)
  return found
}

/** Names of the objects of a kind, sorted. */
export function names(objects: readonly Rendered[], kind: string): string[] {
  return objects
    .filter((object) => object.kind === kind)
    .map(({ metadata }) => metadata.name)
    .sort()
}

/** Returns the specs of all pods, by the name of their workload. */
export function podSpecs(objects: readonly Rendered[]): readonly { readonly name: string; readonly spec: Rendered['spec'] }[] {
  return objects.flatMap(({ kind, metadata: { name }, spec }) => {
    if (kind === 'Pod') return [{ name, spec }]
    return ['Deployment', 'StatefulSet', 'Job'].includes(kind) ? [{ name, spec: spec.template.spec }] : []
  })
}
