// What the vendor's own SDK makes of a fault that TestVendorSDKOnFaults has set: it prints the error's class and status. As in check.js
// the SDK's fetch is given one that goes to the emulator.
const { Sandbox } = require('@vercel/sandbox')

const redirect = (url, init) => fetch(String(url).replace('https://vercel.com/api', process.env.VERCEL_SANDBOX_API_URL), init)
const account = { token: process.env.VERCEL_TOKEN, teamId: process.env.VERCEL_TEAM_ID, projectId: process.env.VERCEL_PROJECT_ID, fetch: redirect }

Sandbox.get({ ...account, name: 'box' }).then(
  () => process.exit(1),
  error => {
    console.log(error.constructor.name, error.response?.status)
    process.exit(0)
  })
