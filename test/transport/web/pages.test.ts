import { expect, test } from 'vitest'
import { confirmPage, devicePage, messagePage } from '../../../src/iam/signin/web/login-pages.js'

const hostile = `"'><script>alert(1)</script>&amp;`
const pages = {
  message: messagePage(400, hostile),
  confirmation: confirmPage({ code: hostile, facts: [[hostile, hostile]], action: hostile, request: hostile, cookie: 'c=1' }),
  device: devicePage({ userCode: hostile, action: hostile }),
}

test.each(Object.entries(pages))('the %s page escapes its texts and attributes, and loads and runs no external content', (_name, { headers, body }) => {
  const html = String(body)
  expect(html).not.toContain('<script')
  expect(html).toContain('&lt;script')
  expect(html).toMatch(/^<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/)
  // No attribute ends early: each quote is the page's own.
  for (const [, value = ''] of html.matchAll(/="([^"]*)"/g)) expect(value).not.toMatch(/[<]/)
  expect(headers).toMatchObject({
    'Content-Type': 'text/html; charset=utf-8',
    'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    'X-Frame-Options': 'DENY',
    'Referrer-Policy': 'no-referrer',
  })
})

test('the confirmation page has its form and sets the cookie', () => {
  const { headers, body } = pages.confirmation
  expect(headers['Set-Cookie']).toBe('c=1')
  expect(body).toContain('<form method="post"')
  expect(String(body).match(/<button name="answer" value="(?:yes|no)">/g)).toHaveLength(2)
})
