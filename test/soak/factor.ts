import { isFullTier } from '../support/tier.ts'

const { TAPROOT_SOAK } = process.env

/**
 * How many times longer than in the full tier the campaigns go on: `TAPROOT_SOAK`, a whole number, 1 without it. Throws where it is something
 * else.
 */
export const soakFactor = readFactor(TAPROOT_SOAK)

/** The length of a campaign, in its own unit: `short` in `npm test`, `full` in the full tier, multiplied by TAPROOT_SOAK. */
export function campaignLength({ short, full }: { readonly short: number; readonly full: number }): number {
  return isFullTier || TAPROOT_SOAK !== undefined ? full * soakFactor : short
}

/** A test's time-out in milliseconds for vitest; none while soaking. */
export function timeoutUnlessSoaking(milliseconds: number): number {
  return soakFactor === 1 ? milliseconds : 0
}

function readFactor(text = '1'): number {
  if (!/^[1-9]\d*$/.test(text)) throw new Error(`TAPROOT_SOAK is no whole number above 0: ${text}`)
  return Number(text)
}
