import { alignedLine, columnWidths, printable } from '../client/columns.ts'
import { jsonText } from '../client/output.ts'
import { UsageError } from '../exit-codes.ts'
import { changeContexts, contextFolder, contextNamed, readContexts, type Contexts, type LoginContext } from './contexts.ts'
import { revokeNow, signInEnd, type SignInTools } from './login.ts'

/** Formats of the list of contexts. */
export type ContextFormat = 'table' | 'json' | 'name'

/** Prints the contexts, without their tokens. */
export async function listContexts({ env, output, note, clock }: SignInTools, format: ContextFormat): Promise<void> {
  const { current, contexts } = await readContexts(contextFolder(env))
  if (format === 'json') return output.write(`${jsonText(contexts.map((context) => ({ ...shownOf(context), current: context.name === current })))}\n`)
  if (format === 'name') return output.write(contexts.map(({ name }) => `${printable(name)}\n`).join(''))
  if (contexts.length === 0) note('no contexts: "taproot login <server>" makes one')
  const rows = contexts.map((context) => [context.name === current ? '*' : '', context.name, context.server, context.registry, stateOf(context, clock.now())])
  const lines = [['', 'NAME', 'SERVER', 'REGISTRY', 'SIGNED IN'], ...rows].map((row) => row.map(printable))
  const widths = columnWidths(lines)
  if (contexts.length > 0) await output.write(lines.map((line) => `${alignedLine(line, widths)}\n`).join(''))
}

function shownOf(context: LoginContext): Readonly<Record<string, unknown>> {
  const { name, server, registry, organisation, caFile, identity, source } = context
  return { name, server, registry, organisation, caFile, identity, ...source, signedInUntil: signInEnd(context) ?? '' }
}

function stateOf(context: LoginContext, nowMs: number): string {
  if (context.source !== undefined) return 'token of another issuer'
  const end = signInEnd(context)
  return end === undefined || Date.parse(end) <= nowMs ? 'no' : `until ${end}`
}

/** Makes a context the current one. */
export async function useContext({ env, output }: SignInTools, name: string): Promise<void> {
  await changeContexts(contextFolder(env), (contexts) => Promise.resolve({ contexts: { ...contexts, current: known(contexts, name).name }, result: undefined }))
  await output.write(`The current context is ${printable(name)}.\n`)
}

function known(contexts: Contexts, name: string): LoginContext {
  const context = contextNamed(contexts, name)
  if (context === undefined) throw new UsageError(`there is no context ${name}: "taproot context list" lists them`)
  return context
}

/** Revokes the sign-in of a context and removes the context. With `local`, only removes it. */
export async function removeContext({ env, output }: SignInTools, name: string, { local }: { readonly local?: true }): Promise<void> {
  await changeContexts(contextFolder(env), async (contexts) => {
    const context = known(contexts, name)
    if (local !== true) await revokeNow(context)
    const others = contexts.contexts.filter((other) => other !== context)
    return { contexts: { current: contexts.current === name ? '' : contexts.current, contexts: others }, result: undefined }
  })
  await output.write(`The context ${printable(name)} is removed.\n`)
}
