import type { DescField, Message } from '@bufbuild/protobuf'
import type { AuthenticatedCaller } from '../../auth/access-tokens/authenticator.ts'
import { DomainError } from '../../base/errors.ts'
import type { AuditTrail } from '../../base/audit-line.ts'
import { methodName, type MethodRow } from '../../base/schema/method.ts'
import { resources } from '../../base/schema/schema.ts'
import { callerOfToken, type Caller, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import { fromStore } from '../../engine/errors.ts'
import { assertValidRequest } from '../../engine/validate.ts'
import { resourceFieldOf } from '../../engine/write.ts'
import { audit, auditFailure } from './audit.ts'
import type { Answer, Call, Dispatch } from './call.ts'
import { CallContext, type FoundCall } from './call-context.ts'
import { assertPresented, isRefusedCredential, verify, verifyOptional, type CredentialOptions } from './credentials.ts'
import { resolvePaths } from './paths.ts'
import { addressKey, type RateLimiter } from '../rate-limit.ts'

/** Answers a method whose credential is not a Taproot access token, or that needs more than stored records. */
export type EndpointHandler = (call: Call, message: Message, session: Session | undefined) => Promise<HandlerAnswer>

/** A caller, and the verified content of the caller's token. */
export interface Session {
  readonly caller: Caller
  readonly token: AuthenticatedCaller
}

/** The dependencies and options of the pipeline. */
export interface PipelineOptions extends CredentialOptions {
  readonly services: Services
  /** The handlers of methods on stored records. A method with neither a handler nor an endpoint answers code 12. */
  readonly handlers: ReadonlyMap<MethodRow, Handler>
  /** The handlers of all other methods, such as the token exchange, by `<service>/<rpc>`. */
  readonly endpoints: ReadonlyMap<string, EndpointHandler>
  /** `bounded` omits the query to the store before each read, so reads may be slightly old (docs/spec/storage.md#consistent-reads). */
  readonly reads: 'linearizable' | 'bounded'
  /** Limits requests by caller; undefined if they are not limited. */
  readonly rateLimiter: RateLimiter | undefined
  /** Receives the audit events. */
  readonly auditLog: AuditTrail
}

/** The results of the steps that a call has passed so far. */
interface Progress {
  caller: Caller | undefined
  subject: string | undefined
}

function unimplemented(method: MethodRow): DomainError {
  return new DomainError(12, `${methodName(method)} is not implemented`)
}

/**
 * Step "barrier": waits until the snapshot contains all commits that were acknowledged before. Mutations always wait. A bounded read only requires that the
 * watch runs.
 */
async function barrier(options: PipelineOptions, call: Call): Promise<void> {
  const { cache } = options.services
  if (options.reads === 'bounded' && !call.method.mutation) cache.assertLive()
  else await cache.barrier()
}

/**
 * Step "barrier", and then computing the caller's permissions in that state. For a caller with very many role bindings this takes several turns of the event
 * loop.
 */
async function upToDate(options: PipelineOptions, call: Call, token: AuthenticatedCaller): Promise<void> {
  await barrier(options, call)
  const preparing = options.services.grants.prepare(token.identityUid, token.restrictions)
  if (preparing !== undefined) await preparing
}

/** Throws code 3 if the header `force-ownership` is neither true nor false. A write must not be forced, or remain unforced, by mistake. */
function assertForce({ headers: { forceOwnership } }: Call): void {
  if (forceOwnership !== undefined && forceOwnership !== 'true' && forceOwnership !== 'false')
    throw DomainError.invalid('force-ownership', 'must be true or false')
}

/** The facts about a method that are computed once. */
interface MethodPlan {
  readonly endpoint: EndpointHandler | undefined
  readonly handler: Handler | undefined
  /** The field that contains the resource of a create or update. The resource's kind checks it. */
  readonly held: DescField | undefined
  /** False for methods that ignore the token or verify it themselves. */
  readonly takesToken: boolean
}

function planOf(options: PipelineOptions, method: MethodRow): MethodPlan {
  const resource = method.kind === undefined ? undefined : resources.get(method.kind)
  const isWrite = method.verb === 'create' || method.verb === 'update'
  return {
    endpoint: options.endpoints.get(methodName(method)),
    handler: options.handlers.get(method),
    held: resource !== undefined && isWrite ? resourceFieldOf(method.input, resource) : undefined,
    takesToken: method.scope !== 'public' && method.scope !== 'external',
  }
}

/** Steps "barrier" and "identity": finds the caller that the token names. Undefined without a token, and for a public method if the identity does not exist. */
async function identify(
  options: PipelineOptions,
  call: Call,
  { token, resume }: { readonly token: AuthenticatedCaller | undefined; readonly resume: () => void },
): Promise<Caller | undefined> {
  const { optionalToken } = call.method
  if (token === undefined && !optionalToken) return undefined
  await (token === undefined ? barrier(options, call) : upToDate(options, call, token))
  resume()
  try {
    return token === undefined ? undefined : callerOfToken(options.services, token)
  } catch (error) {
    if (optionalToken && isRefusedCredential(error)) return undefined
    throw error
  }
}

/** A call that passed the steps before its handler. */
interface Admitted {
  readonly context: Context
  readonly message: Message
  readonly session: Session | undefined
}

/** Counts a call. The transport learns what is left, also if the call is refused. */
function takeFrom(limiter: RateLimiter, call: Call, key: string): void {
  try {
    limiter.take(key)
  } finally {
    if (call.limited !== undefined) call.limited(limiter.stateOf(key))
  }
}

/** A call whose request was read, and whose caller is known. */
interface Arrived extends FoundCall {
  readonly token: AuthenticatedCaller | undefined
}

/** Runs the first steps in order (docs/spec/conventions.md#order-of-checks): verify, rate limit, decode, barrier, identity. */
async function arrive(options: PipelineOptions, plan: MethodPlan, { call, progress }: { call: Call; progress: Progress }): Promise<Arrived> {
  const token = await (plan.takesToken ? verify : verifyOptional)(options, call)
  // Limits the request by identity if it is authenticated, otherwise by client address. No other work happens before.
  const limiter = token === undefined ? options.addressLimiter : options.rateLimiter
  const key = token?.identityUid ?? addressKey(call.remoteAddress)
  if (call.isCounted === true) limiter?.resume(key)
  else if (limiter !== undefined) takeFrom(limiter, call, key)
  assertPresented(call)
  assertForce(call)
  const decoded = await call.decode(() => limiter?.resume(key))
  const caller = await identify(options, call, { token, resume: () => limiter?.resume(key) })
  progress.caller = caller
  if (caller !== undefined) options.services.tracing?.annotate({ 'taproot.identity_uid': caller.identity })
  return { token, caller, decoded }
}

/**
 * Step "paths": replaces the paths in the request by uids, in the snapshot in which the call is then authorized. Requests of version 1 have no paths
 * (docs/spec/resources.md#paths).
 */
function withUids({ services }: PipelineOptions, { method, calledAs }: Call, found: FoundCall): FoundCall {
  const { caller, decoded } = found
  if (caller === undefined || calledAs !== undefined) return found
  const resolved = resolvePaths(services.cache, () => caller.permissions(), { method, message: decoded.message })
  return resolved === undefined ? found : { caller, decoded: { ...decoded, message: resolved.message, original: decoded.message }, resolved }
}

/** Runs the next steps: paths, authorize, validate. */
function admit(options: PipelineOptions, plan: MethodPlan, { call, progress, arrived }: { call: Call; progress: Progress; arrived: Arrived }): Admitted {
  const found = withUids(options, call, arrived)
  const { caller, resolved } = found
  progress.subject = resolved?.hidden
  const context = new CallContext(options, call, found)
  context.authorize()
  const { message } = found.decoded
  assertValidRequest(call.method.input, message, plan.held)
  call.throwIfEnded()
  const { token } = arrived
  return { context, message, session: token === undefined || caller === undefined ? undefined : { caller, token } }
}

/** Answers a list of one record with the Get of that record. Undefined if the caller may not get it. */
async function gotInstead(options: PipelineOptions, call: Call, { caller, decoded }: Arrived): Promise<HandlerAnswer | undefined> {
  const context = new CallContext(options, call, { caller, decoded })
  const handler = options.handlers.get(context.method)
  // Only a known caller can be refused.
  if (caller === undefined || handler === undefined) return undefined
  try {
    context.authorize()
    call.throwIfEnded()
    return await handler(options.services, context, decoded.message)
  } catch (error) {
    if (error instanceof DomainError && (error.code === 5 || error.code === 7)) return undefined
    throw error
  }
}

/** Runs all steps in order, the handler last. */
async function run(options: PipelineOptions, plan: MethodPlan, { call, progress }: { call: Call; progress: Progress }): Promise<Answer> {
  const { endpoint, handler } = plan
  if (endpoint === undefined && handler === undefined) throw unimplemented(call.method)
  let arrived = await arrive(options, plan, { call, progress })
  const { instead } = arrived.decoded
  if (instead !== undefined) {
    const got = await gotInstead(options, call, arrived)
    if (got !== undefined) return got
    arrived = { ...arrived, decoded: { message: instead.list() } }
  }
  const { context, message: asked, session } = admit(options, plan, { call, progress, arrived })
  const { complete } = arrived.decoded
  const message = complete === undefined ? asked : await complete(context)
  const answer = await (endpoint === undefined ? handler?.(options.services, context, message) : endpoint(call, message, session))
  if (answer === undefined) throw unimplemented(call.method)
  progress.subject = answer.subject
  return answer
}

/** Takes a call of a public method through the steps before its handler, for a route that answers it in another form. Throws DomainError. */
export type Admit = (call: Call) => Promise<Context>

/** Creates the steps before a handler. They do not audit: calls of public methods cannot be denied. */
export function createAdmission(options: PipelineOptions): Admit {
  return async (call) => {
    const plan = planOf(options, call.method)
    const progress: Progress = { caller: undefined, subject: undefined }
    return admit(options, plan, { call, progress, arrived: await arrive(options, plan, { call, progress }) }).context
  }
}

/** Creates the pipeline, to which both transports pass their calls. */
export function createPipeline(options: PipelineOptions): Dispatch {
  const { auditLog } = options
  const plans = new Map<MethodRow, MethodPlan>()
  const known = (method: MethodRow): MethodPlan => {
    const plan = plans.get(method) ?? planOf(options, method)
    plans.set(method, plan)
    return plan
  }
  return async (call) => {
    const progress: Progress = { caller: undefined, subject: undefined }
    try {
      const answer = await run(options, known(call.method), { call, progress })
      if (call.method.mutation) audit(auditLog, { call, caller: progress.caller, subject: progress.subject, outcome: 'done' })
      return answer
    } catch (thrown) {
      const error = fromStore(thrown)
      auditFailure(auditLog, { call, ...progress, error })
      throw error
    }
  }
}
