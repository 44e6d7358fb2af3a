import { createHash } from 'node:crypto'
import { loginLifeMs } from './login-state.ts'
import { randomHex } from '../../base/runtime.ts'
import type { Uid } from '../../base/uid.ts'
import type { Entry, Guard, Put } from '../../store/store.ts'
import { commitEntries } from '../../engine/commit.ts'
import type { Services } from '../../engine/services.ts'

/** Key prefix of pending sign-ins of devices and headless clients. */
export const pendingLoginPrefix = 'x/login/'

/** The sign-in that a device without a browser requests (RFC 8628). */
export interface RequestedDeviceLogin {
  readonly clientId: string
  readonly audiences: readonly string[]
  readonly scopes: readonly string[]
  readonly refresh: boolean
  /** IP address of the device. */
  readonly remoteAddress: string
}

/** Result of a device sign-in. */
export type DeviceOutcome =
  | { readonly kind: 'refused' }
  | { readonly kind: 'done'; readonly identity: Uid; readonly token: string; readonly expiryMs: number; readonly refreshToken: string }

/** State of a device sign-in. */
export type DeviceLogin = { readonly requested: RequestedDeviceLogin; readonly outcome: DeviceOutcome | undefined }

/**
 * Minimum time to keep a result, in milliseconds. Meanwhile the device fetches its tokens, and a transaction whose response was lost can
 * be checked.
 */
const takeMs = 60_000

/** Letters that are easy to distinguish and do not form words. */
const letters = 'BCDFGHJKLMNPQRSTVWXZ'
const userCodeLength = 8
/** Maximum number of attempts to find an unused code. */
const maxTries = 5

/** Stored form: JSON whose content is encrypted for its key. */
interface StoredLogin {
  readonly expireMs: number
  readonly sealed: string
}

function keyed(sort: 'device' | 'user-code' | 'headless', text: string): string {
  return `${pendingLoginPrefix}${sort}/${createHash('sha256').update(text).digest('hex')}`
}

function written(services: Services, key: string, content: { value: unknown; expireMs: number }): Put {
  const sealed = Buffer.from(services.keyring.seal(Buffer.from(JSON.stringify(content.value)), key)).toString('base64')
  const stored: StoredLogin = { expireMs: content.expireMs, sealed }
  return { kind: 'put', key, value: Buffer.from(JSON.stringify(stored)) }
}

/** Returns when an entry expires, in milliseconds since 1970. */
export function pendingLoginEndMs({ value }: Pick<Entry, 'value'>): number {
  return storedIn(value).expireMs
}

function storedIn(value: Uint8Array): StoredLogin {
  return JSON.parse(Buffer.from(value).toString('utf8')) as StoredLogin // only `written` writes here
}

interface FoundLogin<Value> {
  readonly entry: Entry
  readonly value: Value
  readonly expireMs: number
}

/** Returns the write that marks an entry as used. It stays until it expires, so that a second use is recognised. */
function used(services: Services, { entry, expireMs }: FoundLogin<unknown>): Put {
  return written(services, entry.key, { value: null, expireMs: Math.max(expireMs, services.clock.now() + takeMs) })
}

/** Returns an entry that exists and is not used; undefined otherwise. */
async function found<Value>(services: Services, key: string, signal: AbortSignal): Promise<FoundLogin<Value> | undefined> {
  const entry = await services.store.get(key, signal)
  if (entry === undefined) return undefined
  const { expireMs, sealed } = storedIn(entry.value)
  if (services.clock.now() >= expireMs) return undefined
  // a cast: the encryption context is the key, which determines the type
  const value = JSON.parse(Buffer.from(services.keyring.open(Buffer.from(sealed, 'base64'), key)).toString('utf8')) as Value | null
  return value === null ? undefined : { entry, expireMs, value }
}

/**
 * Stores a value that only the holder of the code's private key can decrypt. Resolves with false if there already is one, so that another
 * person with the link cannot replace it. Rejects with StoreError, or like commitEntries.
 */
export async function leaveHeadlessSession(
  services: Services,
  session: { code: string; publicKey: string; encrypted: Uint8Array },
  signal: AbortSignal,
): Promise<boolean> {
  const key = keyed('headless', session.code)
  const before = await services.store.get(key, signal)
  if (before !== undefined && services.clock.now() < pendingLoginEndMs(before)) return false
  const guard: Guard = before === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: before.revision }
  const value = { publicKey: session.publicKey, encrypted: Buffer.from(session.encrypted).toString('base64') }
  const write = written(services, key, { value, expireMs: services.clock.now() + loginLifeMs })
  return commitEntries(services, [guard], [write])
}

/** Returns the stored value for this code. It stays until it expires, because a response may be lost. Rejects with StoreError. */
export async function headlessSession(
  services: Services,
  code: string,
  signal: AbortSignal,
): Promise<{ publicKey: string; encrypted: Uint8Array } | undefined> {
  const left = await found<{ publicKey: string; encrypted: string }>(services, keyed('headless', code), signal)
  return left && { publicKey: left.value.publicKey, encrypted: Buffer.from(left.value.encrypted, 'base64') }
}

function newUserCode({ random }: Services): string {
  let code = ''
  while (code.length < userCodeLength) {
    const [byte = 0] = random.bytes(1)
    // Skips the highest bytes, so that all letters are equally likely.
    if (byte < 256 - (256 % letters.length)) code += letters[byte % letters.length] ?? ''
  }
  return code
}

/** Converts a typed user code to its stored form; undefined if it cannot be a code. */
export function userCodeOf(text: string): string | undefined {
  const code = text.toUpperCase().replaceAll(/[^A-Z]/g, '')
  return code.length === userCodeLength && text.length <= 32 && [...code].every((letter) => letters.includes(letter)) ? code : undefined
}

/** Formats a user code for display. */
export function shownUserCode(code: string): string {
  return `${code.slice(0, 4)}-${code.slice(4)}`
}

/**
 * Starts a device sign-in. Resolves with the secret device code and the user code to show. Rejects like commitEntries, or with the
 * signal's reason.
 */
export async function beginDeviceLogin(
  services: Services,
  requested: RequestedDeviceLogin,
  signal: AbortSignal,
): Promise<{ deviceCode: string; userCode: string }> {
  const deviceCode = randomHex(services.random, 32)
  const device = keyed('device', deviceCode)
  const expireMs = services.clock.now() + loginLifeMs
  for (let tries = 0; tries < maxTries; tries += 1) {
    signal.throwIfAborted()
    const userCode = newUserCode(services)
    const shown = keyed('user-code', userCode)
    const guards = [device, shown].map((key) => ({ kind: 'absent', key }) as const)
    const login: DeviceLogin = { requested, outcome: undefined }
    const puts = [written(services, device, { value: login, expireMs }), written(services, shown, { value: device, expireMs })] as const
    if (await commitEntries(services, guards, puts)) return { deviceCode, userCode }
  }
  throw new Error('found no unused user code; try again')
}

/** Returns what the device with this user code requested; undefined if there is no such device. Rejects with StoreError. */
export async function deviceAsking(services: Services, userCode: string, signal: AbortSignal): Promise<RequestedDeviceLogin | undefined> {
  const shown = await found<string>(services, keyed('user-code', userCode), signal)
  const device = shown && (await found<DeviceLogin>(services, shown.value, signal))
  return device?.value.requested
}

/**
 * Stores the result of the device sign-in with this user code. Resolves with false if it already has one. Rejects with StoreError, or like
 * commitEntries.
 */
export async function endDeviceLogin(
  services: Services,
  { userCode, outcome }: { userCode: string; outcome: DeviceOutcome },
  signal: AbortSignal,
): Promise<boolean> {
  const shown = await found<string>(services, keyed('user-code', userCode), signal)
  const device = shown && (await found<DeviceLogin>(services, shown.value, signal))
  if (shown === undefined || device === undefined) return false
  const guards = [shown.entry, device.entry].map(({ key, revision }) => ({ kind: 'unchanged', key, revision }) as const)
  const login: DeviceLogin = { ...device.value, outcome }
  const ending = written(services, device.entry.key, { value: login, expireMs: Math.max(device.expireMs, services.clock.now() + takeMs) })
  // The device may already have fetched its tokens, but nothing stores this code a second time.
  return commitEntries(services, guards, [used(services, shown), ending])
}

/**
 * Returns the state of the device sign-in with this code; undefined if the code is unknown or belongs to another client. Tokens are
 * returned only once. Rejects with StoreError, or like commitEntries.
 */
export async function takeDeviceLogin(
  services: Services,
  of: { deviceCode: string; clientId: string | undefined },
  signal: AbortSignal,
): Promise<DeviceLogin | undefined> {
  const device = await found<DeviceLogin>(services, keyed('device', of.deviceCode), signal)
  if (device === undefined || (of.clientId !== undefined && device.value.requested.clientId !== of.clientId)) return undefined
  if (device.value.outcome?.kind !== 'done') return device.value
  const { key, revision } = device.entry
  return (await commitEntries(services, [{ kind: 'unchanged', key, revision }], [used(services, device)])) ? device.value : undefined
}
